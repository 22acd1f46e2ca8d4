"""From documents to summaries: what evaluate.py and predict.py share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .config import Alpha, Positive
from .loading import Run
from .search import beam_search

DECODING = ("beam", "length_penalty", "average", "trigram_blocking", "min_length", "max_length")


@dataclass(kw_only=True)
class Decoding:
    """Flags of decoding; what is not given comes from the run."""

    beam: Positive | None = None  # Beams (Section 4.2: 6; See et al.: 4); default: the run's, as below.
    length_penalty: Alpha | None = None  # alpha of Wu et al. (Section 4.2: 1.5).
    average: bool | None = None  # Maximise the mean log-probability of a token instead (See et al.).
    trigram_blocking: bool | None = None  # Write no trigram twice (Section 4.2).
    min_length: int | None = None  # Fewest tokens of an output, the end included.
    max_length: Positive | None = None  # Most tokens of an output, the end included.
    batch_size: Positive = 16  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Where the model runs, such as cuda.

    def check(self) -> None:
        """ValueError for two flags that exclude each other."""
        if self.average and self.length_penalty:
            raise ValueError("--average True and --length-penalty exclude each other: leave one of them out")

    def search(self) -> dict:
        """Those of DECODING that were given, and what they switch off."""
        given = {name: value for name in DECODING if (value := getattr(self, name)) is not None}
        other = {"average": False} if self.length_penalty else {"length_penalty": 0.0} if self.average else {}
        return other | given


class Output(NamedTuple):
    """What decoding one document gave."""

    text: str
    was_cut: bool  # the document, to the run's max_source


def decode(run: Run, examples: Sequence, batch_size: int = 16, **search) -> Iterator[tuple[int, Output]]:
    """Summaries, decoded in batches of similar length; yields (index, output) as they are done.

    Args:
        examples: documents in sentences.
        search: beam, length_penalty, ...: DECODING; the run's own values by default.
    """
    options = {name: getattr(run.config, name) for name in DECODING} | search
    options["never"] = run.text.never(run.tokenizer)  # D21: <unk> is never written
    items, device = run.encode(examples), next(run.model.parameters()).device
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        # D10: a blocked trigram is of tokens, in BERTSum of word pieces.
        outputs = beam_search(run.model, run.text.collate([items[i] for i in indices], device), **options).tokens
        for i, tokens in zip(indices, outputs, strict=True):
            yield i, Output(run.text.decode(run.tokenizer, items[i], tokens), items[i].was_cut)
