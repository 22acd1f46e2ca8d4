"""Unit vectors: each unit alone through a frozen encoder, its first token's last state, kept on disk (Section 3)."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

POOLINGS = ("cls", "mean")
CHUNK = 65_536  # units that are encoded, then written to the cache


class UnitEncoder(nn.Module):
    """A frozen encoder of `transformers` that maps each unit to the last hidden state of its first token.

    Args:
        max_tokens: longer units are cut, special tokens included.
        pooling: "mean" takes the mean over all tokens in place of the first (D23).
    """

    def __init__(self, model: "PreTrainedModel", tokenizer: "Tokenizer", max_tokens: int = 128, pooling: str = "cls"):
        super().__init__()
        self.model, self.tokenizer, self.pooling = model.requires_grad_(False), tokenizer, pooling
        self.max_tokens = min(max_tokens, getattr(model.config, "max_position_embeddings", max_tokens))
        self.width = model.config.hidden_size  # D
        self.train(False)

    def train(self, mode: bool = True) -> "UnitEncoder":
        """Eval mode always: a frozen encoder without dropout gives each unit one vector (D6)."""
        return super().train(False)

    @torch.inference_mode()
    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode a few units: (n,) texts -> (n, D)."""
        batch = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.model.device)
        states = self.model(**batch).last_hidden_state  # (n, tokens, D)
        # D23: the mean over the tokens, for encoders that were trained for it.
        if self.pooling == "mean":
            real = batch.attention_mask[..., None]
            return (states * real).sum(1) / real.sum(1)
        # Section 3: "the hidden state of the first token in the last BERT layer"; [CLS] unit [SEP], segment ids 0.
        return states[:, 0]  # (n, D)

    def encode(self, texts: Sequence[str], batch_size: int = 128, progress: Callable = iter) -> np.ndarray:
        """Encode any number of units, those of like length together: (n,) texts -> (n, D) float32, in their order.

        Args:
            progress: wraps the iterator over batches, e.g. `tqdm`.
        """
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for start in progress(range(0, len(texts), batch_size)):
            batch = order[start : start + batch_size]
            vectors[batch] = self([texts[i] for i in batch]).float().cpu().numpy()
        return vectors

    def cuts(self, texts: Sequence[str]) -> bool:
        """Whether one of these units is longer than `max_tokens`, and its vector that of its beginning."""
        long = [text for text in texts if len(text.encode()) > self.max_tokens - 3]  # a piece has at least a byte
        pieces = self.tokenizer(long, verbose=False).input_ids if long else []
        return any(len(ids) > self.max_tokens for ids in pieces)

    def save(self, folder: Path) -> None:
        """Write what `load_encoder` reads."""
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.tokenizer.save_pretrained(folder)
        self.model.save_pretrained(folder)

    def fingerprint(self) -> str:
        """A hash that changes with any weight or setting, the tokenizer, or the cut."""
        config = {k: v for k, v in self.model.config.to_dict().items() if not k.startswith("_") and "version" not in k}
        settings = [self.max_tokens, self.pooling, type(self.model).__name__, json.dumps(config, default=str)]
        settings.append(str(self.tokenizer.backend_tokenizer.normalizer) if self.tokenizer.is_fast else "slow")
        digest = hashlib.sha256(json.dumps([*settings, sorted(self.tokenizer.get_vocab().items())]).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


def load_encoder(name_or_path: str, max_tokens: int = 128, pooling: str = "cls") -> UnitEncoder:
    """An encoder of `transformers` by name or folder (bert-base-uncased in the paper), on the CPU.

    Raises:
        ValueError: it is not here, with the command that gets it, or fails; no tokenizer; weights missing, unread, NaN.
    """
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # missing weights are judged below
    try:
        # Or transformers would offer to run the folder's own code, and take the answer from the documents.
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=False)
        model, info = AutoModel.from_pretrained(
            name_or_path, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        model.pooler = None  # not used; where a checkpoint has none, it would be random and the fingerprint with it
        encoder = UnitEncoder(model, tokenizer, max_tokens, pooling)
        encoder(["short", "and longer"])  # without padding, or with sizes that do not fit, it would fail in the work
    except Exception as error:  # the hub, safetensors and tokenizers raise types of their own
        reason = " ".join(str(error).split())[:100]
        raise ValueError(
            f"no encoder {name_or_path!r} ({reason}). Give the folder of one that was saved with save_pretrained, or, "
            f'on a connected machine: HF_HUB_OFFLINE=0 python -c "from transformers import AutoModel, AutoTokenizer; '
            f'[c.from_pretrained({name_or_path!r}) for c in (AutoModel, AutoTokenizer)]"'
        ) from None
    finally:
        logging.set_verbosity(verbosity)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(f"the encoder {name_or_path!r} has no tokenizer: its tokenizer.json is missing or empty")
    if missing := sorted(name for name in info["missing_keys"] if "pooler" not in name):
        raise ValueError(f"the encoder {name_or_path!r} lacks weights, which would be random: {missing[0]} and others")
    if more := sorted(name for name in info["unexpected_keys"] if re.search(r"layers?\.\d+\.", name)):
        raise ValueError(f"the encoder {name_or_path!r} has weights that its config.json has no layer for: {more[0]}")
    if not all(tensor.isfinite().all() for tensor in model.parameters()):
        raise ValueError(f"the encoder {name_or_path!r} holds NaN or infinite weights")
    return encoder


def random_encoder(texts: Sequence[str], width: int = 128, seed: int = 0, **options) -> UnitEncoder:
    """A small BERT with random weights that knows the words of `texts`, for where no pretrained one is (D9).

    Its first token attends almost evenly to all words, so a vector is a random projection of the unit's words. Fit for
    `toy` and for tests, where nothing is downloaded; not for a result on real text.
    """
    from transformers import BertConfig, BertModel, BertTokenizer

    words = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    characters = sorted({character for word in words for character in word})
    frequent = [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:4000]]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters), *frequent]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(dict.fromkeys(pieces))})
    # The usual 0.02 would leave the first token's own embedding nearly alone in its state.
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=2 * width, max_position_embeddings=512, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config)
    model.pooler = None  # not used
    return UnitEncoder(model, tokenizer, **options)


def cached_vectors(
    encoder: UnitEncoder, texts: Sequence[str], folder: str | os.PathLike, progress: Callable = iter
) -> np.ndarray:
    """Vectors of all units of a corpus, computed once: (n, D) float32, memory-mapped, read-only.

    Args:
        folder: where they are kept, in a file called after a hash of encoder and texts; empty = in memory alone.
    Raises:
        OSError: the disk has no room for it.
        ValueError: the file is there but cut off.
    """
    if not folder:
        return encoder.encode(texts, progress=progress)
    digest = hashlib.sha256(json.dumps([encoder.fingerprint(), *texts]).encode())
    path = Path(folder, f"{digest.hexdigest()[:32]}.npy")
    temporary = path.with_suffix(f".unfinished{os.getpid()}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(texts), encoder.width)}
                np.lib.format.write_array_header_1_0(file, header)
                for start in range(0, len(texts), CHUNK):
                    file.write(encoder.encode(texts[start : start + CHUNK], progress=progress).tobytes())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is cut off or no array ({error}): delete it, and it is computed again") from None
