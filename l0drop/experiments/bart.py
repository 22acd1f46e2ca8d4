"""L0Drop and Algorithm 1 on a pretrained BART of `transformers`, through its public `forward` and `generate`.

python -m l0drop.experiments.bart train --bart facebook/bart-base --data FOLDER --out runs/bart    # prunes 47 %
python -m l0drop.experiments.bart predict runs/bart notes.txt --show-pruned

The model's own code stays as it is: the memory goes in as `encoder_outputs`, and Algorithm 1's counts enter the
cross-attention of every decoder layer through a hook. In Python, with a gate of your own: `model = GatedBart(bart)`,
`model.l0drop[0] = gate`, `model.eval().generate(input_ids, num_beams=4).hypotheses.tokens`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from shared import pretrained
from shared.run import load_weights, one_line_errors, read_config, updates_of

from ..config import Length, Positive
from ..gates import L0Drop, Memory
from ..loading import read_files
from ..model import Encoding, ModelConfig, Transformer
from ..search import Generation, Hypotheses
from ..text import Batch
from .rules import RuleConfig, RuleRun, command, dropped_units, read_dropped, with_rule


@contextmanager
def counted_attention(bart: PreTrainedModel, log_counts: Tensor) -> Iterator[None]:
    """Inside the `with`, add log_counts (B, R) to the logits of every cross-attention; after it BART is as before."""

    def add_log_counts(_: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["key_value_states"]  # (B*W, R, D): `generate` repeats each source for its W beams
        per_beam = log_counts.repeat_interleave(memory.size(0) // log_counts.size(0), 0)  # (B*W, R)
        # Algorithm 1, lines 6-8: a softmax with counts is a softmax of e + log c.  BART adds its mask to e.
        return arguments, keywords | {"attention_mask": per_beam[:, None, None].to(memory.dtype)}  # (B*W, 1, 1, R)

    layers = bart.get_decoder().layers
    hooks = [layer.encoder_attn.register_forward_pre_hook(add_log_counts, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def generate_from(bart: PreTrainedModel, memory: Memory, source: Tensor | None = None, **generation):
    """`bart.generate(**generation)` over a memory; `source` (B, S) for settings that read the source's tokens."""
    attend = memory.log_counts.isfinite().long()  # (B, R)
    with counted_attention(bart, memory.log_counts):
        states = BaseModelOutput(memory.states)
        return bart.generate(source, encoder_outputs=states, attention_mask=attend, **generation)


class GatedBart(nn.Module):
    """D22: a pretrained BART with an L0Drop layer after its encoder; trains and decodes as `model.Transformer`.

    Args:
        bart: a `BartForConditionalGeneration`, or another whose decoder is built like its decoder.
        gate: put the L0Drop layer in; False is the baseline that is only fine-tuned.
        start: of the layer, see `gates.L0Drop`.
    """

    held_open = False  # as in Transformer

    def __init__(self, bart: PreTrainedModel, gate: bool = True, start: float = 0.0):
        super().__init__()
        self.bart, self.width = bart, bart.config.d_model
        self.l0drop = nn.ModuleList([L0Drop(self.width, start=start)] if gate else []).to(bart.device, bart.dtype)
        self.special = bart.config.pad_token_id, bart.config.decoder_start_token_id, bart.config.eos_token_id

    def encode(self, source: Tensor) -> Encoding:
        """As `Transformer.encode`."""
        keep = source != self.special[0]
        states = self.bart.get_encoder()(input_ids=source, attention_mask=keep.long()).last_hidden_state
        if not self.l0drop:
            return Encoding(states, keep, [], [])
        gated, gates, log_alpha = self.l0drop[0](states)
        if self.held_open:  # D19, D20
            gated, gates = states, torch.ones_like(gates)
        return Encoding(gated, keep, [gates], [log_alpha])

    def forward(self, source: Tensor, target_input: Tensor, rule_keep: Tensor | None = None) -> tuple[Tensor, Encoding]:
        """As `Transformer.forward`."""
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

        `generation` is length_penalty and all else that `generate` of transformers takes.
        """
        if self.training:
            raise ValueError("the model is in training mode, where gates are sampled: call model.eval() first")
        if beam:
            generation["num_beams"] = beam
        encoding = self.encode(source)
        memory = self.make_memory(encoding, rule_keep, prune)
        tokens = generate_from(self.bart, memory, source=source, **generation)
        no_scores = torch.full((len(source),), torch.nan)  # for them `generate` would keep the logits of every step
        return Generation(Hypotheses(tokens, no_scores), encoding, memory.states.size(1))


# Runs


@dataclass(frozen=True)
class GatedBartConfig(RuleConfig):
    """A run's config with a pretrained BART in place of the model's sizes; the defaults suit 2,000 documents."""

    bart: str = "facebook/bart-base"  # BART to start from: hub name or folder.
    max_source: Length = 300  # Longest source in tokens, longer ones are cut.
    max_target: Length = 80  # Longest target in training in tokens; longest output where the BART names none.
    steps: Positive = 350  # Updates of this run.
    batch_tokens: Positive = 150  # Padded target tokens of a micro-batch of one process: the memory goes with them.
    accumulate: Positive = 3  # Micro-batches per update and process (D14).
    learning_rate: float = 0.03  # Factor of D^-0.5 min(n^-0.5, n warmup^-1.5).
    warmup: Positive = 50  # Updates in which the rate rises.

    def check(self) -> None:
        super().check()
        own = [each.name for each in fields(ModelConfig) if getattr(self, each.name) != each.default]
        changed = [name for name in own if name not in ("l0drop", "gate_start")]
        if changed := changed + ["units"] * (self.units != "bpe"):
            raise ValueError(f"--{changed[0].replace('_', '-')} does not go with a BART: leave it out")
        if self.l0drop == "every":
            raise ValueError("--l0drop every does not go with a BART: use output or none")


class BartRun(RuleRun):
    """A run with a GatedBart."""

    reader = "experiments.bart predict"

    def generate(self, batch: Batch, **search) -> Generation:
        if search.get("max_length"):
            search["max_length"] = min(search["max_length"], pretrained.positions_of(self.model.bart))
        return self.model.generate(batch.source, batch.rule_keep, **search)

    def write_files(self, folder: Path) -> None:
        super().write_files(folder)
        self.model.bart.config.save_pretrained(folder / "model")
        self.model.bart.generation_config.save_pretrained(folder / "model")


def begin(config: GatedBartConfig, examples: Sequence) -> BartRun:
    """A pretrained BART, or that of the run that `config.init` names, with new gates where it has none.

    ValueError: flags that do not fit that run.
    """
    if config.init:
        base = load_run(config.init)
        if config.bart != base.config.bart:
            raise ValueError(f"--bart: {config.init} has {base.config.bart!r}, leave it out")
        if base.model.l0drop and config.l0drop == "none":
            raise ValueError(f"{config.init} has gates: --l0drop none does not fit")
        if max(config.max_source, config.max_target) > (most := pretrained.positions_of(base.model.bart)):
            raise ValueError(f"{config.init} reads {most} tokens: lower --max-source or --max-target")
        bart, tokenizer = base.model.bart, base.tokenizer
        first_step = base.first_step + updates_of(config.init, base.config)
    else:
        (bart, tokenizer), first_step = load_pretrained(config), 0
    model = new_model(config, bart)
    if config.init and base.model.l0drop and model.l0drop:
        model.l0drop = base.model.l0drop
    return with_rule(BartRun(config, model, tokenizer, first_step), dropped_units(examples, tokenizer, config.rule))


def load_run(folder: str | Path) -> BartRun:
    """Read a run, its model in eval mode on the CPU; ValueError as `loading.load_run`."""
    config, (tokenizer, first_step) = read_config(folder, GatedBartConfig), read_files(folder)
    files = Path(folder, "model")
    try:
        bart = BartForConditionalGeneration(BartConfig.from_pretrained(files))
        bart.generation_config = GenerationConfig.from_pretrained(files)
    except (OSError, ValueError) as error:
        raise ValueError(f"{files} is not the configuration of a BART: {error}") from None
    pretrained.generation(bart, config.max_target)
    tokenizer.encode_special_tokens = True  # a "</s>" that stands in a text is text
    model = new_model(config, bart)
    load_weights(model, folder)
    return with_rule(BartRun(config, model.eval(), tokenizer, first_step), read_dropped(folder))


def new_model(config: GatedBartConfig, bart: PreTrainedModel) -> GatedBart:
    """The model of a config around a BART."""
    return GatedBart(bart, config.l0drop != "none", config.gate_start)


def load_pretrained(config: GatedBartConfig) -> tuple[PreTrainedModel, Tokenizer]:
    """The BART of a config, and its tokenizer, which puts nothing after a text; ValueError: not a BART, or unfit."""
    bart, wrapped = pretrained.load("bart", config.bart, positions=max(config.max_source, config.max_target))
    pretrained.generation(bart, config.max_target)
    tokenizer, before = Tokenizer.from_str(wrapped.backend_tokenizer.to_str()), wrapped("").input_ids[:-1]
    special = list(zip(wrapped.convert_ids_to_tokens(before), before, strict=True))
    single = [*(token for token, _ in special), "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a "</s>" that stands in a text is text
    return bart, tokenizer


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command(arguments, GatedBartConfig, begin, load_run, __doc__)


if __name__ == "__main__":
    main()
