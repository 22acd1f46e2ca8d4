"""L0Drop and Algorithm 1 on a pretrained BART of `transformers`, through its public `forward` and
`generate`.

python -m l0drop.experiments.bart train --bart facebook/bart-base --data FOLDER --out runs/bart    #
    prunes 47 %
python -m l0drop.experiments.bart predict runs/bart notes.txt --show-pruned

The model's own code stays as it is: the memory goes in as `encoder_outputs`, and Algorithm 1's
counts enter the cross-attention through a hook of the decoder. In Python, with a gate of your own:
`model = GatedBart(bart)`, `model.l0drop[0] = gate`, `tokens, encoding =
model.eval().generate(input_ids, num_beams=4)`.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import processors
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from shared import pretrained
from shared.run import load_weights, one_line_errors, read_config

from .. import predict as core
from ..config import Length, Positive
from ..gates import L0Drop, compress
from ..loading import read_files
from ..model import Encoding, ModelConfig
from ..text import Item
from .rules import DROPPED, RuleConfig, RuleRun, attendable, command, dropped_units


def counted_attention(bart: PreTrainedModel, log_counts: Tensor) -> RemovableHandle:
    """Inside `with` of it, log_counts (B, R) are added to the logits of every cross-attention."""

    def add_log_counts(_: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        # (B*W, R, D): `generate` repeats each source for its W beams
        memory = keywords["encoder_hidden_states"]
        per_beam = log_counts.repeat_interleave(memory.size(0) // log_counts.size(0), 0)  # (B*W, R)
        # Algorithm 1, lines 6-8: a softmax with counts is a softmax of e + log c.  BART adds its
        # mask to e.
        return arguments, keywords | {
            "encoder_attention_mask": per_beam[:, None, None].to(memory.dtype)
        }

    return bart.get_decoder().register_forward_pre_hook(add_log_counts, with_kwargs=True)


class GatedBart(nn.Module):
    """D22: a pretrained BART with an L0Drop layer after its encoder; without `gate` a baseline, or
    one with a rule.
    """

    def __init__(self, bart: PreTrainedModel, gate: bool = True, dropped: Collection[int] = ()):
        super().__init__()
        self.bart, self.width, self.dropped = bart, bart.config.d_model, dropped
        self.l0drop = nn.ModuleList([L0Drop(self.width)] if gate else []).to(
            bart.device, bart.dtype
        )
        names = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
        self.pad, self.bos, self.eos = (getattr(bart.config, name) for name in names)

    def encode(self, source: Tensor, hold_open: bool = False) -> Encoding:
        """As `Transformer.encode`; without gates those of a rule, which raises ids by DROPPED."""
        gates, source = (source < DROPPED).float(), source % DROPPED
        keep = source != self.pad
        states = self.bart.get_encoder()(
            input_ids=source, attention_mask=keep.long()
        ).last_hidden_state
        if not self.l0drop:
            return Encoding(states, keep, [gates], [])
        gated, gates, log_alpha = self.l0drop[0](states)
        if hold_open:  # D19, D20
            gated, gates = states, torch.ones_like(gates)
        return Encoding(gated, keep, [gates], [log_alpha])

    def forward(
        self, source: Tensor, target_input: Tensor, hold_open: bool = False
    ) -> tuple[Tensor, Encoding]:
        """As `Transformer.forward`."""
        encoding = self.encode(source, hold_open)
        # Eq. (11): the decoder attends to the gated states, zeros included.
        inputs = dict(
            encoder_outputs=BaseModelOutput(encoding.states),
            attention_mask=attendable(encoding).long(),
        )
        return self.bart(**inputs, decoder_input_ids=target_input, use_cache=False).logits, encoding

    @torch.inference_mode()
    def generate(self, source: Tensor, **generation) -> tuple[Tensor, Encoding]:
        """Tokens (B, T) by the model's own `generate` and its own settings, where `generation` has
        no others.
        """
        if self.training:
            raise ValueError(
                "the model is in training mode, where gates are sampled: call model.eval() first"
            )
        encoding = self.encode(source)
        states, log_counts = compress(encoding.states, encoding.gates[-1], attendable(encoding))
        inputs = dict(
            encoder_outputs=BaseModelOutput(states), attention_mask=log_counts.isfinite().long()
        )
        with counted_attention(self.bart, log_counts):
            return self.bart.generate(**inputs, **generation), encoding


# Runs


@dataclass(frozen=True)
class GatedBartConfig(RuleConfig):
    """A run's config with a pretrained BART in place of the model's sizes; the defaults suit 2,000
    documents.
    """

    bart: str = "facebook/bart-base"  # BART to start from: hub name or folder.
    max_source: Length = 300  # Longest source in tokens, longer ones are cut.
    # Longest target in training in tokens; longest output where the BART names none.
    max_target: Length = 80
    steps: Positive = 350  # Updates of this run.
    # Padded target tokens of a micro-batch of one process: the memory goes with them.
    batch_tokens: Positive = 150
    accumulate: Positive = 3  # Micro-batches per update and process (D14).
    learning_rate: float = 0.03  # Factor of D^-0.5 min(n^-0.5, n warmup^-1.5).
    warmup: Positive = 50  # Updates in which the rate rises.

    def check(self) -> None:
        super().check()
        for name in ("units", "init", *ModelConfig.__dataclass_fields__):
            value = getattr(self, name)
            if value not in (getattr(GatedBartConfig, name), "none"):  # --l0drop none is a control
                raise ValueError(
                    f"--{name.replace('_', '-')} {value} does not go with a BART: leave it out"
                )


class BartRun(RuleRun):
    """A run with a GatedBart."""

    def write_files(self, folder: Path) -> None:
        super().write_files(folder)
        self.model.bart.config.save_pretrained(folder / "model")
        self.model.bart.generation_config.save_pretrained(folder / "model")


def begin(config: GatedBartConfig, examples: Sequence) -> BartRun:
    """A pretrained BART with new gates; ValueError: not a BART, or unfit."""
    bart, wrapped = pretrained.load(
        "bart", config.bart, positions=max(config.max_source, config.max_target)
    )
    pretrained.generation(bart, config.max_target)
    (start, _), tokenizer = wrapped("").tokens(), wrapped.backend_tokenizer
    special = [(start, tokenizer.token_to_id(start))]  # before a text; `encode` adds its end
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=special
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a "</s>" that stands in a text is text
    model = GatedBart(bart, config.l0drop != "none", dropped_units(config, examples, tokenizer))
    return BartRun(config, model, tokenizer)


def load_run(folder: str | Path) -> BartRun:
    """Read a run, its model in eval mode on the CPU; ValueError as `loading.load_run`."""
    config, (tokenizer, _) = read_config(folder, GatedBartConfig), read_files(folder)
    tokenizer.encode_special_tokens = True  # a "</s>" that stands in a text is text
    files = Path(folder, "model")
    try:
        bart = BartForConditionalGeneration(BartConfig.from_pretrained(files))
        bart.generation_config = GenerationConfig.from_pretrained(files)
        dropped = frozenset(json.loads(Path(folder, "rule.json").read_text()))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} has not the configuration of a BART: {error}") from None
    model = GatedBart(bart, config.l0drop != "none", dropped)
    load_weights(model, folder)
    return BartRun(config, model.eval(), tokenizer)


def decode(run: BartRun, items: Sequence[Item], **_) -> list[core.Decoded]:
    """As `predict.decode`, by the BART's own `generate` and its settings."""
    tokens, encoding = run.model.generate(run.collate(items).source)
    rows = zip(items, tokens.tolist(), (encoding.gates[-1] == 0).tolist(), strict=True)
    return [core.Decoded(output, [pruned[: len(item.source)]]) for item, output, pruned in rows]


def write(run: BartRun, examples: Sequence, options: core.Options) -> None:
    """As `predict.write`; beams (but for a --beam that is not 4), lengths, penalties are the BART's
    own; by ROUGE.
    """
    flags = {"max_length": options.max_length, "length_penalty": options.length_penalty}
    flags["num_beams"] = options.beam if options.beam != core.Options.beam else None
    pretrained.generation(run.model.bart, run.config.max_target, **flags)
    core.write(run, examples, replace(options, metric="rouge"), decode=decode)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command(arguments, "bart", __doc__, GatedBartConfig, begin, load_run, write)


if __name__ == "__main__":
    main()
