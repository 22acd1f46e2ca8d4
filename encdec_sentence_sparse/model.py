"""BART with sentence-sparse attention.

The idea is in selection.py and attention.py; this is the BART around it.

Figure 3: the sentence encoder reads the encoder's states; every decoder layer has a
`FastAttention`.
"""

import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from .approximator import SentenceEncoder
from .fast_attention import FastAttention, SourceCache, check_settings
from .selection import FULL, Selection, SentenceAttention, Sentences, sentences_of


class SentenceSparseBart(BartForConditionalGeneration):
    """A BART with sentence-sparse attention in every decoder layer.

    `selection` is an argument of its methods. A field of our own is saved with its config:
    `sentence_encoder`, None or one of approximator.KINDS.
    """

    def __init__(self, config: BartConfig):
        super().__init__(config)
        for number, layer in enumerate(self.get_decoder().layers):
            layer.encoder_attn = FastAttention(layer.encoder_attn, number)
        self.sentence_encoder: SentenceEncoder | None = None
        if getattr(config, "sentence_encoder", None):
            add_approximator(self, config.sentence_encoder)

    @property
    def attentions(self) -> list[FastAttention]:
        """Encoder-decoder attention, layer by layer."""
        return [layer.encoder_attn for layer in self.get_decoder().layers]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: SourceCache | None = None,
        sentence_ids: Tensor | None = None,
        selection: Selection = FULL,
        record: list[SentenceAttention] | None = None,
        **keywords,
    ):
        """As BART's, with three more arguments.

        The selection is a mask; with a SourceCache, that of the cache holds.

        Args:
            encoder_outputs: give them for inputs_embeds, or to have the encoder's attention or
                hidden states.
            sentence_ids: (B, S), see `selection.sentences_of`; may be left out in mode "full".
            selection: which sentences each target step attends to, in every decoder layer.
            record: a list that gets a SentenceAttention per decoder layer, in the place of BART's
                cross_attentions.
        Raises:
            ValueError: a mode that the model has no weights for, sentence ids that do not cover the
                input.
        """
        sentences = None
        if not isinstance(past_key_values, SourceCache):
            if encoder_outputs is None:
                encoder = self.get_encoder()
                encoder_outputs = encoder(input_ids=input_ids, attention_mask=attention_mask)
            source = (encoder_outputs[0], sentence_ids, attention_mask)
            sentences = self.find_sentences(*source, selection, is_recorded=record is not None)
        return super().forward(
            attention_mask=attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            # BART hands these on to each layer's attention.
            sentences=sentences,
            selection=selection,
            record=record,
            **keywords,
        )

    def find_sentences(
        self,
        states: Tensor,
        sentence_ids: Tensor | None,
        attention_mask: Tensor | None,
        selection: Selection,
        is_recorded: bool = False,
    ) -> Sentences:
        """The sentences of encoded documents (B, S, D), with vectors where a map needs them."""
        encoder = self.sentence_encoder
        if selection.mode == "approx" and encoder is None:
            raise ValueError(
                "mode 'approx' needs an approximator: load a run of --task kl or integrated"
            )
        encodes = encoder is not None and (selection.mode == "approx" or is_recorded)
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        if sentence_ids is None:
            if selection.mode != "full" or encodes:
                raise ValueError(
                    "give sentence_ids: (B, S), the sentence of each token, -1 at padding"
                )
            sentence_ids = attention_mask.long() - 1  # one sentence
        sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
        return sentences._replace(encoded=encoder(states, sentences)) if encodes else sentences

    @torch.no_grad()
    def project(
        self,
        states: Tensor,
        sentence_ids: Tensor | None,
        attention_mask: Tensor | None,
        selection: Selection = FULL,
    ) -> SourceCache:
        """A new cache of encoded documents (B, S, D), which is read under one selection."""
        sentences = self.find_sentences(states, sentence_ids, attention_mask, selection)
        memories = [
            attention.project(states, sentences, selection) for attention in self.attentions
        ]
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
            attention_mask: (B, S); left out, <pad> in input_ids is padding, as in transformers, if
                it is not </s>, too.
            encoder_outputs: in place of input_ids, where the documents are already encoded; stays
                as it is.
            use_cache: False = the masked form, every step from the beginning.
            generation: keyword arguments of transformers' `generate` but
                fast_attention.NOT_SUPPORTED.
        Raises:
            ValueError: as in `forward`; a setting that is not supported, also of a
                generation_config.
        """
        settings = generation.get("generation_config") or self.generation_config
        check_settings(settings.to_dict() | generation)
        pad = self.config.pad_token_id
        if attention_mask is None and input_ids is not None and pad != self.config.eos_token_id:
            attention_mask = (input_ids != pad).long()
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
        states = encoder_outputs[0]
        if use_cache:
            cache = self.project(states, sentence_ids, attention_mask, selection)
            return super().generate(use_cache=True, **cache.stand_in(states), **generation)
        source = dict(attention_mask=attention_mask, sentence_ids=sentence_ids, selection=selection)
        return super().generate(
            encoder_outputs=BaseModelOutput(states), use_cache=False, **source, **generation
        )


def add_approximator(model: SentenceSparseBart, kind: str) -> None:
    """Give the model a sentence encoder, and maps that start as those of the words (A.1)."""
    encoder = SentenceEncoder(kind, model.config.d_model, model.config.dropout)
    model.sentence_encoder = encoder.to(model.device, model.dtype).train(model.training)
    for attention in model.attentions:
        attention.add_sentence_maps()
    model.config.sentence_encoder = kind


def approximator_parameters(model: SentenceSparseBart) -> list[nn.Parameter]:
    """theta~ of Section 4.3: the sentence encoder and the maps W^Q, W^K of all layers."""
    if model.sentence_encoder is None:
        return []
    parameters = [*model.sentence_encoder.parameters()]
    for attention in model.attentions:
        parameters += attention.sentence_q.parameters()
        parameters += attention.sentence_k.parameters()
    return parameters


def freeze(model: SentenceSparseBart, phase: str) -> None:
    """Let only those parameters learn that a training phase, one of selection.PHASES, updates.

    "base" and "sparse" (Eq. (5)): all but an approximator. "kl" (Eq. (11)): the approximator.
    "integrated" (Eq. (12)): the approximator and the decoder's layers.
    """
    model.requires_grad_(phase in ("base", "sparse"))
    # D26: without embeddings, positions and the norm after them (layernorm_embedding)
    if phase == "integrated":
        model.get_decoder().layers.requires_grad_(True)
    for parameter in approximator_parameters(model):
        parameter.requires_grad_(phase in ("kl", "integrated"))


def bart_config(
    vocabulary: int, width: int, feed_forward: int, heads: int, layers: int, positions: int, **more
) -> BartConfig:
    """A BART whose encoder and decoder are of one size; `more` are other fields."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": feed_forward}
    sides = {
        f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()
    }
    return BartConfig(
        vocab_size=vocabulary, d_model=width, max_position_embeddings=positions, **sides, **more
    )
