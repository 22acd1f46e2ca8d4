"""BART with sentence-sparse attention. The idea is in selection.py and attention.py; this is the BART around it.

Figure 3: the sentence encoder reads the encoder's states; every decoder layer has a `FastAttention`.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from .approximator import SentenceEncoder
from .attention import FULL
from .fast_attention import FastAttention, SourceCache
from .lobart import make_local
from .selection import Selection, SentenceAttention
from .sentences import Sentences, sentences_of

# Arguments of `generate` that read the source's tokens or bring a cache of their own: here the source is in a cache.
NOT_SUPPORTED = {
    "inputs", "inputs_embeds", "past_key_values", "cache_implementation", "assistant_model", "guidance_scale",
    "prompt_lookup_num_tokens", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "output_attentions",
}  # fmt: skip


class SentenceSparseBart(BartForConditionalGeneration):
    """A BART with sentence-sparse attention in every decoder layer; `selection` is an argument of its methods.

    Two fields of our own are saved with its config: `sentence_encoder` (None, or a kind of approximator.KINDS) and
    `attention_window` (None, or the width of LoBART's local attention).
    """

    def __init__(self, config: BartConfig):
        super().__init__(config)
        for number, layer in enumerate(self.get_decoder().layers):
            layer.encoder_attn = FastAttention(layer.encoder_attn, number)
        self.sentence_encoder: SentenceEncoder | None = None
        if getattr(config, "attention_window", None):
            make_local(self, config.attention_window)
        if getattr(config, "sentence_encoder", None):
            add_approximator(self, config.sentence_encoder)

    @property
    def attentions(self) -> list[FastAttention]:
        return [layer.encoder_attn for layer in self.get_decoder().layers]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: SourceCache | None = None,
        sentence_ids: Tensor | None = None,
        selection: Selection = FULL,
        record: list[SentenceAttention] | None = None,
        **keywords,
    ):
        """As BART's, with three more arguments. The selection is a mask; with a SourceCache, that of the cache holds.

        Args:
            sentence_ids: (B, S), see `sentences.sentences_of`; may be left out in mode "full".
            selection: which sentences each target step attends to, in every decoder layer.
            record: a list that gets a SentenceAttention per decoder layer.
        Raises:
            ValueError: a mode that the model has no weights for, sentence ids that do not cover the input.
        """
        sentences = None
        if not isinstance(past_key_values, SourceCache):
            if encoder_outputs is None:
                encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
            source = (encoder_outputs[0], sentence_ids, attention_mask)
            sentences = self.find_sentences(*source, selection, is_recorded=record is not None)
        theirs = dict(attention_mask=attention_mask, encoder_outputs=encoder_outputs, past_key_values=past_key_values)
        return super().forward(**theirs, sentences=sentences, selection=selection, record=record, **keywords)

    def find_sentences(
        self,
        states: Tensor,
        sentence_ids: Tensor | None,
        attention_mask: Tensor | None,
        selection: Selection,
        is_recorded: bool = False,
    ) -> Sentences:
        """The sentences of encoded documents (B, S, D), themselves encoded where the approximation is asked for."""
        encoder = self.sentence_encoder
        if selection.mode == "approx" and encoder is None:
            raise ValueError("mode 'approx' needs an approximator: load a run of --task kl or integrated")
        encodes = encoder is not None and (selection.mode == "approx" or is_recorded)
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        if sentence_ids is None:
            if selection.mode != "full" or encodes:
                raise ValueError("give sentence_ids: (B, S), the sentence of each token, -1 at padding")
            sentence_ids = attention_mask.long() - 1  # one sentence
        sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
        return sentences._replace(encoded=encoder(states, sentences)) if encodes else sentences

    @torch.no_grad()
    def project(
        self, states: Tensor, sentence_ids: Tensor | None, attention_mask: Tensor | None, selection: Selection = FULL
    ) -> SourceCache:
        """A new cache of encoded documents (B, S, D), which is read under one selection."""
        sentences = self.find_sentences(states, sentence_ids, attention_mask, selection)
        memories = [attention.project(states, sentences, selection) for attention in self.attentions]
        return SourceCache(self.config, memories, sentences, selection)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        selection: Selection = FULL,
        use_cache: bool = True,
        **generation,
    ):
        """`generate` of transformers with the sources kept once, in a cache of their own.

        Args:
            attention_mask: (B, S); left out, <pad> in input_ids is padding, as in transformers.
            encoder_outputs: in place of input_ids, where the documents are already encoded; stays as it is.
            use_cache: False = the masked form, every step from the beginning.
            generation: keyword arguments of transformers' `generate` but NOT_SUPPORTED.
        Raises:
            ValueError: as in `forward`; an argument that is not supported.
        """
        if refused := NOT_SUPPORTED & generation.keys():
            raise ValueError(f"generate does not support {min(refused)} here: the source is in a cache of its own")
        if attention_mask is None and input_ids is not None:
            attention_mask = (input_ids != self.config.pad_token_id).long()
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
        states = encoder_outputs[0]
        if not use_cache:
            source = dict(attention_mask=attention_mask, sentence_ids=sentence_ids, selection=selection)
            return super().generate(encoder_outputs=BaseModelOutput(states), use_cache=False, **source, **generation)
        cache = self.project(states, sentence_ids, attention_mask, selection)
        # `generate` repeats its inputs for every beam: one position stands for the source, which is in the cache.
        stand_in = dict(encoder_outputs=BaseModelOutput(states[:, :1]), attention_mask=cache.sentences.ids[:, :1] + 1)
        return super().generate(past_key_values=cache, **stand_in, **generation)


def add_approximator(model: SentenceSparseBart, kind: str) -> None:
    """Give the model a new approximator: a sentence encoder, and maps that start as those of the words (A.1)."""
    model.sentence_encoder = SentenceEncoder(kind, model.config.d_model, model.config.dropout).to(model.device)
    for attention in model.attentions:
        attention.add_sentence_maps()
    model.config.sentence_encoder = kind


def approximator_parameters(model: SentenceSparseBart) -> list[nn.Parameter]:
    """theta~ of Section 4.3: the sentence encoder's parameters and the maps W^Q, W^K of all layers."""
    parts = [model.sentence_encoder, *(part for a in model.attentions for part in (a.sentence_q, a.sentence_k))]
    return [parameter for part in parts if part is not None for parameter in part.parameters()]


def freeze(model: SentenceSparseBart, phase: str) -> None:
    """Let only those parameters learn that a training phase, one of selection.PHASES, updates.

    "base" and "sparse" (Eq. (5)): all but an approximator. "kl" (Eq. (11)): the approximator. "integrated" (Eq. (12)):
    the approximator and the decoder's layers.
    """
    model.requires_grad_(phase in ("base", "sparse"))
    if phase == "integrated":  # D26: without embeddings, positions and the norm after them (layernorm_embedding)
        model.get_decoder().layers.requires_grad_(True)
    for parameter in approximator_parameters(model):
        parameter.requires_grad_(phase in ("kl", "integrated"))


def bart_config(
    vocabulary: int, width: int, feed_forward: int, heads: int, layers: int, positions: int, **more
) -> BartConfig:
    """A BART whose encoder and decoder are of one size; `more` are other fields."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": feed_forward}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    return BartConfig(vocab_size=vocabulary, d_model=width, max_position_embeddings=positions, **sides, **more)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """A tokenizer by hub name or folder, which runs no code of theirs; ValueError where its file is missing."""
    if Path(name).is_dir() and not any(Path(name, file).is_file() for file in ("tokenizer.json", "vocab.json")):
        raise ValueError("it has no tokenizer.json")  # transformers would make up one that knows no word
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def load_model(name: str) -> tuple[SentenceSparseBart, PreTrainedTokenizerBase]:
    """Any BART of transformers, or a model of this package, in eval mode, and its tokenizer, by hub name or folder.

    Raises:
        ValueError: not there, not in reach, no BART, weights that are missing or not finite; says what to do.
    """
    try:
        kind = BartConfig.get_config_dict(name)[0].get("model_type")
        if kind != "bart":
            raise ValueError(f"it is a {kind} model: give the name or folder of a BART")
        tokenizer = load_tokenizer(name)
        options = dict(dtype=torch.float32, output_loading_info=True, trust_remote_code=False)
        model, report = SentenceSparseBart.from_pretrained(name, **options)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "it is neither a run nor a BART" if Path(name).exists() else f"HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {name!r} ({' '.join(str(error).split())[:200]}): {remedy}") from None
    if wrong := {*map(str, report["missing_keys"]), *map(str, report["unexpected_keys"])}:
        raise ValueError(f"{name}: weights do not fit: {min(wrong)} and {len(wrong) - 1} others")
    if bad := [weight for weight, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{name}: {bad[0]} holds NaN or infinite numbers")
    return model.eval(), tokenizer
