"""BART whose decoder attends to the top-r source sentences only (Manakul & Gales 2021).

    bart = load_model("facebook/bart-large-cnn")
    bart.selection = Selection("mean_key", r=5)
    bart.generate(input_ids, attention_mask=attention_mask, sentence_ids=sentence_ids, num_beams=4)

Figure 3: the sentence encoder reads the encoder's states; every decoder layer has a `SentenceSparseAttention`.
"""

import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from .approximator import SentenceEncoder
from .attention import SentenceSparseAttention, SourceCache
from .lobart import extend_positions, make_local
from .selection import Selection, SentenceAttention, Sentences, sentences_of

PHASES = ("base", "sparse", "kl", "integrated")


class SentenceSparseBart(BartForConditionalGeneration):
    """A BART with SentenceSparseAttention in every decoder layer. `selection` says how, and may be changed at any time.

    Args:
        config: of a BART. Two fields of our own are saved with it: `sentence_encoder` (None, or a kind of
            approximator.KINDS) and `attention_window` (None, or the width of LoBART's local attention).
    """

    def __init__(self, config: BartConfig):
        super().__init__(config)
        self.selection = Selection()
        for number, layer in enumerate(self.get_decoder().layers):
            layer.encoder_attn = SentenceSparseAttention(layer.encoder_attn, number)
        self.sentence_encoder: SentenceEncoder | None = None
        if getattr(config, "attention_window", None):
            make_local(self, config.attention_window)
        if getattr(config, "sentence_encoder", None):
            add_approximator(self, config.sentence_encoder)

    @property
    def attentions(self) -> list[SentenceSparseAttention]:
        return [layer.encoder_attn for layer in self.get_decoder().layers]

    def find_sentences(
        self, states: Tensor, sentence_ids: Tensor | None, attention_mask: Tensor | None, is_recorded: bool = False
    ) -> Sentences:
        """The sentences of encoded documents (B, S, D), themselves encoded where the approximation is asked for."""
        mode = self.selection.mode
        encodes = self.sentence_encoder is not None and (mode == "approx" or is_recorded)
        if mode == "approx" and self.sentence_encoder is None:
            raise ValueError("mode 'approx' needs an approximator: load a run of --task kl or integrated")
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        if sentence_ids is None:
            if mode != "full" or encodes:
                raise ValueError("give sentence_ids: (B, S), the sentence of each token, -1 at padding")
            sentence_ids = attention_mask.long() - 1  # one sentence
        sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
        return sentences._replace(encoded=self.sentence_encoder(states, sentences)) if encodes else sentences

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
            if self.selection.share_beams:
                raise ValueError("share_beams needs the cache of `generate`, which alone knows the beams of a source")
            if encoder_outputs is None:
                encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
            sentences = self.find_sentences(encoder_outputs[0], sentence_ids, attention_mask, record is not None)
        return super().forward(
            attention_mask=attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            sentences=sentences,
            selection=self.selection,
            record=record,
            **keywords,
        )

    @torch.no_grad()
    def remember(self, states: Tensor, sentence_ids: Tensor | None, attention_mask: Tensor | None) -> SourceCache:
        """A new cache that holds encoded documents (B, S, D) once each."""
        sentences = self.find_sentences(states, sentence_ids, attention_mask)
        memories = [attention.remember(states, sentences, self.selection) for attention in self.attentions]
        return SourceCache(self.config, memories, sentences)

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
        """`generate` of transformers with the sources kept once; all of its flags.

        Args:
            attention_mask: (B, S); left out, <pad> in input_ids is padding, as in transformers.
            encoder_outputs: in place of input_ids, where the documents are already encoded; stays as it is.
            use_cache: False = the masked form, every step from the beginning.
        Raises:
            ValueError: as in `forward`; `record`, which needs all steps at once.
        """
        if "record" in generation:
            raise ValueError("record is an argument of forward: read the summary again with decoder_input_ids")
        if attention_mask is None and input_ids is not None:
            attention_mask = (input_ids != self.config.pad_token_id).long()
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)
        states = encoder_outputs[0]
        if not use_cache:
            source = dict(attention_mask=attention_mask, sentence_ids=sentence_ids, use_cache=False)
            return super().generate(encoder_outputs=BaseModelOutput(states), **source, **generation)
        cache = self.remember(states, sentence_ids, attention_mask)
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
    """Let only those parameters learn that a training phase updates.

    Args:
        phase: "base" and "sparse" (Eq. (5)): all but an approximator. "kl" (Eq. (11)): the approximator. "integrated"
            (Eq. (12)): the approximator and the decoder's layers; the encoder, the embeddings and the decoder's
            embedding norm stay (released code).
    """
    if phase not in PHASES:
        raise ValueError(f"phase is {phase!r}; use one of {', '.join(PHASES)}")
    model.requires_grad_(phase in ("base", "sparse"))
    if phase == "integrated":
        model.get_decoder().layers.requires_grad_(True)
    for parameter in approximator_parameters(model):
        parameter.requires_grad_(phase in ("kl", "integrated"))


def load_model(
    name: str,
    sentence_encoder: str | None = None,
    attention_window: int | None = None,
    positions: int | None = None,
) -> SentenceSparseBart:
    """Any BART of transformers, or a model of this package, in eval mode.

    Args:
        name: a name of the hub or a folder.
        sentence_encoder: a new approximator of this kind, unless the model has one of this kind.
        attention_window: LoBART: width of the encoder's local attention, in tokens; even.
        positions: LoBART: length of the position table, filled by copies of the model's own.
    """
    config = BartConfig.from_pretrained(name)
    if attention_window:
        config.attention_window = attention_window
    model = SentenceSparseBart.from_pretrained(name, config=config, dtype=torch.float32)
    if positions:
        extend_positions(model, positions)
    if sentence_encoder and getattr(config, "sentence_encoder", None) != sentence_encoder:
        add_approximator(model, sentence_encoder)
    return model.eval()
