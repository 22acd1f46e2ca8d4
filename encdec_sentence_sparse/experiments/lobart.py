"""LoBART, the paper's BART for long inputs (A.1): local attention and more positions.

python -m encdec_sentence_sparse.experiments.lobart train --preset paper-arxiv --out runs/lobart
python -m encdec_sentence_sparse.experiments.lobart predict runs/int --data arxiv --split test

Between them: `train --preset paper-kl --init runs/lobart --out runs/kl`, then
`train --preset paper-integrated --init runs/kl --out runs/int`. LoBART is from Manakul and Gales
(2021), Long-Span Summarization; released code: potsawee/longsum0. It was not run here.
"""

import sys
from collections.abc import Sequence
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BartConfig, BartForConditionalGeneration

from shared.run import one_line_errors, parse

from .. import loading, predict
from ..config import PAPER, TrainConfig
from ..model import SentenceSparseBart
from ..train import train

WINDOW, POSITIONS = 1024, 4096  # A.1

# D27: released code: searches of --min-length 56 and --max-length 400 (arXiv) or 144 (Podcast),
# else --decoding paper.
# D24: the fine-tuned LoBART that the KL run starts from is trained first; r 30, which is r* of
# Section 4.4, is in training, too. arXiv: the released LoBART is an average over 220,000 to 260,000
# documents; here training ends there.
LOBART = PAPER | dict(task="base", model="facebook/bart-large-cnn", max_source=POSITIONS, r=30)
PRESETS = {
    "tiny": {},
    "paper-arxiv": LOBART | dict(data="arxiv", max_target=400, steps=130_000),
    # data: a folder. D24: A.3's W is 10,000 documents here
    "paper-podcast": LOBART
    | dict(data="podcast", max_target=144, steps=30_207, warmup=5_000, learning_rate=2e-5),
    # --init: a run of the two above; A.5
    "paper-kl": dict(
        task="kl", max_target=200, warmup=10_000, learning_rate=PAPER["learning_rate"]
    ),
    # --init: a run of paper-kl; A.5
    "paper-integrated": dict(task="integrated", select="approx", max_target=400),
}


class LocalAttention(nn.Module):
    """Self-attention of an encoder layer within a window: what `make_local` turns BART's into.

    Token i sees token j if |i - j| <= window / 2 and j is no padding. It always sees itself: a row
    without any token to see would give NaN. Tokens are read half a window at a time, so that the
    scores' time and memory grow with S.
    """

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None, **unused
    ) -> tuple[Tensor, None]:
        """(B, S, D) -> (B, S, D).

        Args:
            attention_mask: (B, 1, S, S), True (or, as a mask to add, 0) = token; None = no padding.
        """
        projections = self.q_proj, self.k_proj, self.v_proj
        split = (f(hidden_states).unflatten(-1, (self.num_heads, -1)) for f in projections)
        queries, keys, values = (x.transpose(1, 2) for x in split)  # (B, H, S, K)
        dropout = self.dropout if self.training else 0.0
        positions = torch.arange(hidden_states.size(1), device=hidden_states.device)
        contexts = []
        for start in range(0, len(positions), self.reach):
            rows = slice(start, start + self.reach)
            seen = slice(max(start - self.reach, 0), rows.stop + self.reach)
            distance = (positions[rows].unsqueeze(1) - positions[seen]).abs()
            keep = distance <= self.reach  # (rows, seen)
            if attention_mask is not None:
                mask = attention_mask[..., rows, seen]  # (B, 1, rows, seen)
                is_token = mask if mask.dtype == torch.bool else mask == 0
                keep = keep & is_token | (distance == 0)
            parts = queries[:, :, rows], keys[:, :, seen], values[:, :, seen]
            contexts.append(F.scaled_dot_product_attention(*parts, keep, dropout))
        return self.out_proj(torch.cat(contexts, 2).transpose(1, 2).flatten(2)), None


def make_local(model: BartForConditionalGeneration, window: int = WINDOW) -> None:
    """Local attention in every layer of the encoder, `window` tokens wide."""
    for layer in model.get_encoder().layers:
        layer.self_attn.__class__, layer.self_attn.reach = LocalAttention, window // 2


def extend_positions(model: BartForConditionalGeneration, positions: int = POSITIONS) -> None:
    """A longer table of positions for the encoder: BART's own, flipped, as it is, and so on.

    So neighbours stay alike where one copy ends and the next begins. D16: the released code flips
    BART's whole table, with the two rows at its beginning that stand for no position; here they
    stay at the beginning.
    """
    encoder = model.get_encoder()
    table, known = encoder.embed_positions, encoder.max_source_positions
    there_and_back = [*range(known), *range(known - 1, -1, -1)]
    rows = [there_and_back[position % (2 * known)] + table.offset for position in range(positions)]
    table.weight = nn.Parameter(table.weight.detach()[[*range(table.offset), *rows]])
    table.num_embeddings, encoder.max_source_positions = len(table.weight), positions


class LoBart(SentenceSparseBart):
    """LoBART with sentence-sparse attention in its decoder; its config says that it is local."""

    def __init__(self, config: BartConfig):
        super().__init__(config)
        if getattr(config, "is_local", False):
            self.lengthen()

    @classmethod
    def from_pretrained(cls, name: str, **options) -> tuple["LoBart", dict]:
        """A BART's weights, lengthened; as `shared.pretrained.load` asks for them."""
        model, report = super().from_pretrained(name, **options)
        model.lengthen()
        return model, report

    def lengthen(self) -> None:
        """Local attention and more positions in the encoder."""
        make_local(self)
        extend_positions(self)
        self.config.is_local = True


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The package's own commands, whose models are LoBARTs."""
    command, *flags = (sys.argv[1:] if arguments is None else arguments) or [""]
    with mock.patch.object(loading, "SentenceSparseBart", LoBart):
        if command == "train":
            config, out, resume = parse(flags, TrainConfig, PRESETS, __doc__)
            if not (config.init or config.model):
                raise ValueError("a LoBART is made of a BART: give --model NAME, or --init RUN")
            train(config, out, resume)
        elif command == "predict":
            predict.main(flags)
        else:
            raise ValueError(f"the first word is {command!r}; give train or predict")


if __name__ == "__main__":
    main()
