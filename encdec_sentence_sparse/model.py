"""BART with sentence-sparse attention. The idea is in selection.py and attention.py; this is the BART around it.

Figure 3: the sentence encoder reads the encoder's states; every decoder layer has a `FastAttention`.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bart.configuration_bart import BartConfig
from transformers.models.bart.modeling_bart import BartForConditionalGeneration

from .approximator import SentenceEncoder
from .fast_attention import FastAttention, SourceCache
from .lobart import make_local
from .selection import PHASES, Selection, SentenceAttention
from .sentences import Sentences, sentences_of

# Arguments of `generate`, and the value at which they do nothing: what reads the source's tokens or other prompts, what
# brings a cache or a loop of its own, and what is not computed here or would grow with each step.
NOT_SUPPORTED = {
    "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0, "guidance_scale": 1.0, "inputs": None,
    "inputs_embeds": None, "negative_prompt_ids": None, "prompt_lookup_num_tokens": None,
    "assistant_model": None, "cache_implementation": None, "past_key_values": None, "trust_remote_code": False,
    "use_mtp": False, "output_attentions": False, "record": None,
}  # fmt: skip


class SentenceSparseBart(BartForConditionalGeneration):
    """A BART with sentence-sparse attention in every decoder layer. `selection` says how; it may be changed any time.

    Two fields of our own are saved with its config: `sentence_encoder` (None, or a kind of approximator.KINDS) and
    `attention_window` (None, or the width of LoBART's local attention).
    """

    def __init__(self, config: BartConfig):
        super().__init__(config)
        self.selection = Selection()
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
        record: list[SentenceAttention] | None = None,
        **keywords,
    ):
        """As BART's, with two arguments more. The selection is a mask, unless a SourceCache is given.

        Args:
            sentence_ids: (B, S), see `selection.sentences_of`; may be left out in mode "full".
            record: a list that gets a SentenceAttention per decoder layer.
        Raises:
            ValueError: a mode that the model has no weights for, sentence ids that do not cover the input.
        """
        sentences = None
        if not isinstance(past_key_values, SourceCache):
            if encoder_outputs is None:
                encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
            sentences = self.find_sentences(encoder_outputs[0], sentence_ids, attention_mask, record is not None)
        theirs = dict(attention_mask=attention_mask, encoder_outputs=encoder_outputs, past_key_values=past_key_values)
        ours = dict(sentences=sentences, selection=self.selection, record=record)
        return super().forward(**theirs, **ours, **keywords)

    def find_sentences(
        self, states: Tensor, sentence_ids: Tensor | None, attention_mask: Tensor | None, is_recorded: bool = False
    ) -> Sentences:
        """The sentences of encoded documents (B, S, D), themselves encoded where the approximation is asked for."""
        mode, encoder = self.selection.mode, self.sentence_encoder
        if mode == "approx" and encoder is None:
            raise ValueError("mode 'approx' needs an approximator: load a run of --task kl or integrated")
        encodes = encoder is not None and (mode == "approx" or is_recorded)
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        if sentence_ids is None:
            if mode != "full" or encodes:
                raise ValueError("give sentence_ids: (B, S), the sentence of each token, -1 at padding")
            sentence_ids = attention_mask.long() - 1  # one sentence
        sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
        return sentences._replace(encoded=encoder(states, sentences)) if encodes else sentences

    @torch.no_grad()
    def project(
        self, states: Tensor, sentence_ids: Tensor | None, attention_mask: Tensor | None, is_lazy: bool = False
    ) -> SourceCache:
        """A new cache of encoded documents (B, S, D); `is_lazy`: keys and values are made when they are first read."""
        sentences = self.find_sentences(states, sentence_ids, attention_mask)
        is_lazy &= states.device.type == "cpu" and self.selection.r < sentences.exists.size(1)
        memories = [attention.project(states, sentences, self.selection, is_lazy) for attention in self.attentions]
        return SourceCache(self.config, memories, sentences, states)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        use_cache: bool = True,
        **generation,
    ):
        """`generate` of transformers with the sources kept once, in a cache of their own.

        Args:
            attention_mask: (B, S); left out, <pad> in input_ids is padding, as in transformers.
            encoder_outputs: in place of input_ids, where the documents are already encoded; stays as it is.
            use_cache: False = the masked form, every step from the beginning.
            generation: keyword arguments of transformers' `generate`, generation_config too, but NOT_SUPPORTED.
        Raises:
            ValueError: as in `forward`; an argument that is not supported, given here or by a generation_config.
        """
        settings = generation.get("generation_config") or self.generation_config
        for name, neutral in NOT_SUPPORTED.items():
            if generation.get(name, getattr(settings, name, None)) not in (None, neutral):
                raise ValueError(f"generate does not support {name} here: the source is in a cache of its own")
        if attention_mask is None and input_ids is not None:
            attention_mask = (input_ids != self.config.pad_token_id).long()
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
        states = encoder_outputs[0]
        if not use_cache:
            source = dict(attention_mask=attention_mask, sentence_ids=sentence_ids, use_cache=False)
            return super().generate(encoder_outputs=BaseModelOutput(states), **source, **generation)
        cache = self.project(states, sentence_ids, attention_mask, is_lazy=True)
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
    """Let only those parameters learn that a training phase, one of PHASES, updates.

    "base" and "sparse" (Eq. (5)): all but an approximator. "kl" (Eq. (11)): the approximator. "integrated" (Eq. (12)):
    the approximator and the decoder's layers.
    """
    if phase not in PHASES:
        raise ValueError(f"phase is {phase!r}; use one of {', '.join(PHASES)}")
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


def check_sizes(config: dict) -> None:
    """ValueError for a size in a BART's config.json that is none, or of no model that can be built."""
    sides = [name for name in config if name.endswith(("coder_layers", "attention_heads", "ffn_dim"))]
    for name in ["vocab_size", "d_model", "max_position_embeddings", *sides]:
        if type(value := config.get(name, 1)) is not int or not 1 <= value <= 10**6:
            raise ValueError(f"config.json: {name} is {value!r:.60}; it must be a whole number from 1 to 1,000,000")


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """A tokenizer by hub name or folder, which runs no code of theirs; ValueError where its file is missing."""
    if Path(name).is_dir() and not any(Path(name, file).is_file() for file in ("tokenizer.json", "vocab.json")):
        raise ValueError("it has no tokenizer.json")  # transformers would make up one that knows no word
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def load_model(name: str) -> tuple[SentenceSparseBart, PreTrainedTokenizerBase]:
    """Any BART of transformers, or a model of this package, in eval mode, and its tokenizer, by hub name or folder.

    Raises:
        ValueError: not there, not in reach, no BART, weights that do not fit or are not finite; says what to do.
    """
    try:
        tokenizer, config = load_tokenizer(name), BartConfig.get_config_dict(name)[0]
        if (kind := config.get("model_type")) != "bart":
            raise ValueError(f"it is a {kind} model: give the name or folder of a BART")
        check_sizes(config)
        if Path(name, "generation_config.json").exists():
            GenerationConfig.from_pretrained(name)  # where it is cut off, transformers would take others in silence
        model, report = SentenceSparseBart.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, trust_remote_code=False
        )
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "it is neither a run nor a BART" if Path(name).exists() else f"HF_HUB_OFFLINE=0 hf download {name}"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot load {name!r} ({reason}): {remedy}") from None
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            names = sorted(map(str, report[problem]))
            raise ValueError(f"{name}: weights do not fit: {problem.replace('_', ' ')} {names[0]}, {len(names)} in all")
    if bad := [weight for weight, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{name}: {bad[0]} holds NaN or infinite numbers")
    return model.eval(), tokenizer
