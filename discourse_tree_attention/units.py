"""Unit vectors: each unit alone through a frozen encoder, its first token's last state, kept on disk (Section 3)."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

MAX_TOKENS = 128  # longest unit in word pieces, [CLS] and [SEP] included; longer ones are cut


class UnitEncoder(nn.Module):
    """A frozen encoder of `transformers` that maps each unit to the last hidden state of its first token.

    Args:
        pooling: "cls", or "mean" for the mean over all tokens in place of the first (D23).
    """

    def __init__(self, model: nn.Module, tokenizer, pooling: str = "cls"):
        super().__init__()
        self.model, self.tokenizer, self.pooling = model.requires_grad_(False), tokenizer, pooling
        self.width = model.config.hidden_size  # D
        self.train(False)

    def train(self, mode: bool = True) -> "UnitEncoder":
        """Eval mode always: a frozen encoder without dropout gives each unit one vector (D6)."""
        return super().train(False)

    @torch.inference_mode()
    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode a few units: (n,) texts -> (n, D)."""
        cut = dict(padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        batch = self.tokenizer(list(texts), **cut).to(self.model.device)
        states = self.model(**batch).last_hidden_state  # (n, tokens, D)
        # D23: the mean over the tokens, for encoders that were trained for it.
        if self.pooling == "mean":
            real = batch.attention_mask[..., None]
            return (states * real).sum(1) / real.sum(1)
        # Section 3: "the hidden state of the first token in the last BERT layer"; [CLS] unit [SEP], segment ids 0.
        return states[:, 0]  # (n, D)

    def encode(self, texts: Sequence[str], batch_size: int = 128) -> np.ndarray:
        """Encode any number of units, those of like length together: (n,) texts -> (n, D) float32, in their order."""
        from tqdm import tqdm

        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for start in tqdm(range(0, len(texts), batch_size), desc="unit vectors", leave=False, disable=None):
            batch = order[start : start + batch_size]
            vectors[batch] = self([texts[i] for i in batch]).float().cpu().numpy()
        return vectors

    def fingerprint(self) -> str:
        """A hash that changes with any weight, with the vocabulary, or with the pooling."""
        settings = self.pooling, MAX_TOKENS, type(self.model).__name__, self.model.config.num_attention_heads
        digest = hashlib.sha256(repr((settings, sorted(self.tokenizer.get_vocab().items()))).encode())
        for tensor in self.model.state_dict().values():
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


def load_encoder(name_or_path: str, pooling: str = "cls") -> UnitEncoder:
    """An encoder of `transformers` by name or folder (bert-base-uncased in the paper), on the CPU.

    Raises:
        ValueError: it is not here, with the command that gets it; it has no tokenizer; weights are missing or NaN.
    """
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # missing weights are judged below
    try:  # trust_remote_code: or transformers would ask whether to run the folder's code, and take a document for a yes
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=False)
        model, info = AutoModel.from_pretrained(
            name_or_path, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    except Exception as error:  # the hub, safetensors and tokenizers raise types of their own
        reason = f"no encoder {name_or_path!r} ({' '.join(str(error).split())[:100]})"
        raise ValueError(f"{reason}: give a folder, or get it on a connected machine: hf download NAME") from None
    lacking = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    lacking += [name for name, tensor in model.named_parameters() if not tensor.isfinite().all()]
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        lacking = ["tokenizer"]
    if lacking:
        raise ValueError(f"the encoder {name_or_path!r} has no {lacking[0]}, or numbers that are NaN: get it again")
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    model.pooler = None  # not used; where a checkpoint has none, it would be random and the fingerprint with it
    return UnitEncoder(model, tokenizer, pooling)


def random_encoder(texts: Sequence[str], pooling: str = "cls", width: int = 128, seed: int = 0) -> UnitEncoder:
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
    return UnitEncoder(model, tokenizer, pooling)


def cached_vectors(encoder: UnitEncoder, texts: Sequence[str], folder: str | os.PathLike = "") -> np.ndarray:
    """Vectors of all units of a corpus, computed once: (n, D) float32, memory-mapped, read-only.

    Args:
        folder: where they are kept, in a file called after a hash of encoder and texts; empty = in memory alone.
    """
    if not folder:
        return encoder.encode(texts)
    digest = hashlib.sha256(repr([encoder.fingerprint(), *texts]).encode("utf-8", "surrogatepass"))
    path = Path(folder, f"{digest.hexdigest()[:32]}.npy")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npy")
        np.save(unfinished, encoder.encode(texts))
        os.replace(unfinished, path)
    return np.load(path, mmap_mode="r")
