"""L0Drop and Algorithm 1 on a BART or Marian of `transformers`, through its public `forward` and `generate`.

`GatedBart` is what `--model NAME` trains: a pretrained model with an L0Drop layer on its encoder's output. The model's
own code stays as it is: the memory goes in as `encoder_outputs`, and Algorithm 1's counts enter the cross-attention of
every decoder layer through a hook. With a gate of your own:

    model = GatedBart(bart)
    model.l0drop[0] = gate
    tokens = model.eval().generate(input_ids, num_beams=4, max_new_tokens=60).hypotheses.tokens
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .gates import L0Drop, Memory
from .model import Encoding, Transformer
from .search import Generation, Hypotheses


@contextmanager
def counted_attention(bart: PreTrainedModel, log_counts: Tensor) -> Iterator[None]:
    """Inside the `with`, add log_counts to the logits of every cross-attention; on leaving, BART is as before.

    Args:
        log_counts: (B, R) of the memory that is attended to; -inf hides padding.
    """

    def add_log_counts(_: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["key_value_states"]  # (B*W, R, D): `generate` repeats each source for its W beams
        per_beam = log_counts.repeat_interleave(memory.size(0) // log_counts.size(0), 0)  # (B*W, R)
        # Algorithm 1, lines 6-8: c exp(e) / sum(c exp(e)) is a softmax of e + log c.  BART adds its mask to e.
        return arguments, keywords | {"attention_mask": per_beam[:, None, None].to(memory.dtype)}  # (B*W, 1, 1, R)

    layers = bart.get_decoder().layers
    hooks = [layer.encoder_attn.register_forward_pre_hook(add_log_counts, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def generate_from(bart: PreTrainedModel, memory: Memory, **generation):
    """`bart.generate(**generation)` over a memory."""
    attend = memory.log_counts.isfinite().long()  # (B, R)
    with counted_attention(bart, memory.log_counts):
        return bart.generate(encoder_outputs=BaseModelOutput(memory.states), attention_mask=attend, **generation)


class GatedBart(nn.Module):
    """A pretrained model with an L0Drop layer between encoder and decoder; trains and decodes as `model.Transformer`.

    Args:
        bart: a `BartForConditionalGeneration`, `MarianMTModel` or another whose decoder is built like theirs.
        gate: put the L0Drop layer in; False is the baseline that is only fine-tuned.
        bias, start: of the layer, see `gates.L0Drop`.
    Raises:
        ValueError: another kind of model.
    """

    def __init__(self, bart: PreTrainedModel, gate: bool = True, bias: bool = True, start: float = 0.0):
        super().__init__()
        layers = getattr(bart.get_decoder(), "layers", [None])
        if not hasattr(layers[0], "encoder_attn"):
            raise ValueError(f"{type(bart).__name__} is not built like BART: its decoder layers have no `encoder_attn`")
        self.bart, self.width = bart, bart.config.d_model
        self.l0drop = nn.ModuleList([L0Drop(self.width, bias, start)] if gate else [])
        self.special = bart.config.pad_token_id, bart.config.decoder_start_token_id, bart.config.eos_token_id

    def encode(self, source: Tensor) -> Encoding:
        """(B, S) token ids -> gated states (B, S, D), gates and log_alpha as of `Transformer.encode`."""
        keep = source != self.special[0]
        states = self.bart.get_encoder()(input_ids=source, attention_mask=keep.long()).last_hidden_state
        if not self.l0drop:
            return Encoding(states, keep, [], [])
        gated, gates, log_alpha = self.l0drop[0](states)
        return Encoding(gated, keep, [gates], [log_alpha])

    def forward(self, source: Tensor, target_input: Tensor, rule_keep: Tensor | None = None) -> tuple[Tensor, Encoding]:
        """Teacher forcing: (B, S) and (B, T) token ids -> (B, T, V) logits and the encoding."""
        encoding = self.encode(source)
        keep = encoding.keep if rule_keep is None else encoding.keep & rule_keep  # D8
        # Eq. (11): the decoder attends to the gated states, zeros included.
        output = self.bart(
            encoder_outputs=BaseModelOutput(encoding.states), attention_mask=keep.long(),
            decoder_input_ids=target_input, use_cache=False,
        )  # fmt: skip
        return output.logits, encoding

    make_memory = Transformer.make_memory  # Algorithm 1, or all gated states

    @torch.inference_mode()
    def generate(
        self, source: Tensor, rule_keep: Tensor | None = None, prune: bool = True, beam: int | None = None, **generation
    ) -> Generation:
        """As `search.generate`, by the model's own `generate` and its own settings; without scores.

        Args:
            source: (B, S) token ids.
            rule_keep: (B, S) a pattern of Section 7, as in `Transformer.make_memory`.
            prune: Algorithm 1; False attends to every gated state. The outputs are the same.
            generation: length_penalty and all else that `generate` of transformers takes.
        """
        if beam:
            generation["num_beams"] = beam
        encoding = self.encode(source)
        memory = self.make_memory(encoding, rule_keep, prune)
        tokens = generate_from(self.bart, memory, **generation)
        no_scores = torch.full((len(source),), torch.nan)  # for them `generate` would keep the logits of every step
        return Generation(Hypotheses(tokens, no_scores), encoding, memory.states.size(1))


def from_config(folder: Path) -> PreTrainedModel:
    """A model with new weights and the settings of `generate`, from the configuration files in a folder."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    bart = AutoModelForSeq2SeqLM.from_config(config, trust_remote_code=False)
    bart.generation_config = GenerationConfig.from_pretrained(folder)
    return bart


def load_pretrained(name: str, max_source: int = 0):
    """A sequence-to-sequence model of the hub or of a folder, and its `tokenizers.Tokenizer`.

    What the tokenizer puts before a text (<s>) stays; what it puts after (</s>) is left to the text pipeline.

    Raises:
        ValueError: weights that are missing or NaN; fewer positions than the longest source, `max_source`.
    """
    from tokenizers import Tokenizer, processors

    bart, report = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=False, output_loading_info=True)
    nan = [key for key, weight in bart.named_parameters() if not weight.isfinite().all()]
    if bad := sorted([*report["missing_keys"], *nan]):
        raise ValueError(f"--model {name}: {bad[0]} is missing among its weights, or holds NaN")
    if max_source > (positions := getattr(bart.config, "max_position_embeddings", max_source)):
        raise ValueError(f"--max-source is {max_source}; {name} has {positions} positions")
    wrapped = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    tokenizer, before = Tokenizer.from_str(wrapped.backend_tokenizer.to_str()), wrapped("").input_ids[:-1]
    special = list(zip(wrapped.convert_ids_to_tokens(before), before, strict=True))
    single = [*(token for token, _ in special), "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return bart, tokenizer
