"""Unit vectors: each unit alone through a frozen encoder, its first token's last state, kept on disk (Section 3)."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging


class UnitEncoder(nn.Module):
    """A frozen encoder of `transformers` that maps each unit to the last hidden state of its first token."""

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer, max_tokens: int = 128):
        """Take the model as it is and freeze it.

        Args:
            max_tokens: longer units are cut, special tokens included.
        """
        super().__init__()
        self.model, self.tokenizer = model.requires_grad_(False), tokenizer
        self.max_tokens = min(max_tokens, getattr(model.config, "max_position_embeddings", max_tokens))
        self.train(False)

    def train(self, mode: bool = True) -> "UnitEncoder":
        """Eval mode always: a frozen encoder without dropout gives each unit one vector (D6)."""
        return super().train(False)

    @property
    def width(self) -> int:
        """D, the width of the vectors."""
        return self.model.config.hidden_size

    @torch.inference_mode()
    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode a few units: (n,) texts -> (n, D)."""
        # Section 3: "the hidden state of the first token in the last BERT layer"; [CLS] unit [SEP], segment ids 0.
        batch = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.model.device)
        return self.model(**batch).last_hidden_state[:, 0]  # (n, D)

    def encode(
        self,
        texts: Sequence[str],
        vectors: np.ndarray | None = None,
        batch_tokens: int = 4096,
        progress: Callable = iter,
    ) -> np.ndarray:
        """Encode any number of units: (n,) texts -> (n, D) float32, in the order of the texts.

        Args:
            vectors: (n, D) array to write to, which may be a file in memory; by default a new one.
            batch_tokens: most padded tokens in a batch; units of like length go together.
            progress: wraps the iterator over batches, e.g. `tqdm`.
        """
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens).input_ids
        vectors = np.empty((len(texts), self.width), dtype=np.float32) if vectors is None else vectors
        for batch in progress(list(batches_by_length([len(unit) for unit in ids], batch_tokens))):
            vectors[batch] = self([texts[i] for i in batch]).float().cpu().numpy()
        return vectors

    def save(self, folder: Path) -> None:
        """Write what `load_encoder` reads."""
        logging.disable_progress_bar()
        self.tokenizer.save_pretrained(folder)
        self.model.save_pretrained(folder)

    def fingerprint(self) -> str:
        """A hash that changes with any weight or setting, the tokenizer, or the cut."""
        config = {k: v for k, v in self.model.config.to_dict().items() if not k.startswith("_") and "version" not in k}
        settings = [self.max_tokens, type(self.model).__name__, json.dumps(config, sort_keys=True, default=str)]
        settings.append(str(self.tokenizer.backend_tokenizer.normalizer) if self.tokenizer.is_fast else "slow")
        digest = hashlib.sha256(json.dumps(settings).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        digest.update(json.dumps(sorted(self.tokenizer.get_vocab().items())).encode())
        return digest.hexdigest()


def batches_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of like length, longest first, of at most `batch_tokens` padded tokens or of one unit."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def load_encoder(name_or_path: str, max_tokens: int = 128) -> UnitEncoder:
    """An encoder of `transformers` by name or folder (bert-base-uncased in the paper), on the CPU.

    Raises:
        ValueError: it is neither a folder nor in the cache nor in reach, with the command that gets it; its weights
            do not fit, or hold NaN.
    """
    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # missing weights are judged below
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
        model, info = AutoModel.from_pretrained(name_or_path, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # the hub, safetensors and tokenizers raise types of their own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"no encoder {name_or_path!r} ({reason}). Give the folder of one that was saved with save_pretrained, or, "
            f'on a connected machine: HF_HUB_OFFLINE=0 python -c "from transformers import AutoModel, AutoTokenizer; '
            f'[c.from_pretrained({name_or_path!r}) for c in (AutoModel, AutoTokenizer)]"'
        ) from None
    finally:
        logging.set_verbosity(verbosity)
    if missing := sorted(name for name in info["missing_keys"] if "pooler" not in name):
        raise ValueError(f"the encoder {name_or_path!r} lacks weights, which would be random: {missing[0]} and others")
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # not used; where a checkpoint has none, it would be random and the fingerprint with it
    if not all(tensor.isfinite().all() for tensor in model.parameters()):
        raise ValueError(f"the encoder {name_or_path!r} holds NaN or infinite weights")
    return UnitEncoder(model, tokenizer, max_tokens)


def random_encoder(texts: Sequence[str], width: int = 128, seed: int = 0, max_tokens: int = 128) -> UnitEncoder:
    """A small BERT with random weights that knows the words of `texts`, for where no pretrained one is (D9).

    Its first token attends almost evenly to all words, so a vector is a random projection of the unit's words. Fit for
    `toy` and for tests, where nothing is downloaded; not for a result on real text.
    """
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
    return UnitEncoder(model, tokenizer, max_tokens)


def cached_vectors(
    encoder: UnitEncoder, texts: Sequence[str], folder: str | os.PathLike, progress: Callable = iter
) -> np.ndarray:
    """Vectors of all units of a corpus, computed once: (n, D) float32, memory-mapped, read-only.

    The file's name is a hash of the encoder's weights and tokenizer and of all texts, so that vectors of another
    encoder or of changed texts are never taken for these. It is written under a temporary name and renamed.

    Args:
        folder: where the file is kept; empty = the vectors are computed in memory.
    Raises:
        OSError: the disk has no room for them.
        ValueError: the file is there but cut off.
    """
    if not folder:
        return encoder.encode(texts, progress=progress)
    key, shape = json.dumps([encoder.fingerprint(), list(texts)]), (len(texts), encoder.width)
    path = Path(folder, f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy")
    temporary = path.with_suffix(f".unfinished{os.getpid()}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            reserve(temporary)
            encoder.encode(texts, vectors, progress=progress)
            vectors.flush()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    try:
        vectors = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is cut off or no array ({error}): delete it, and it is computed again") from None
    if vectors.shape != shape:
        raise ValueError(f"{path} holds an array of {vectors.shape}, not {shape}: delete it, and it is computed again")
    return vectors


def reserve(path: Path) -> None:
    """Take the disk space of a file that has holes: OSError now, not a signal that kills the process later."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
