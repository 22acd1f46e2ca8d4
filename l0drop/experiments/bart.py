"""L0Drop and Algorithm 1 on a pretrained BART, through its public `forward` and `generate`.

python -m l0drop.experiments.bart train --bart facebook/bart-base --data FOLDER --out runs/bart
python -m l0drop.experiments.bart predict runs/bart notes.txt --show-pruned

The model's own code stays as it is: the memory goes in as `encoder_outputs`, and Algorithm 1's
counts enter the cross-attention through a hook of the decoder. In Python, with a gate of your own:
`model = GatedBart(bart)`, `model.l0drop[0] = gate`, `tokens, encoding =
model.eval().generate(input_ids, num_beams=4)`.
"""

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from shared import pretrained
from shared.data import Example, read
from shared.pack import pack
from shared.run import find_device, load_weights, one_line_errors, parse, read_config, read_flags

from .. import predict as core
from ..config import PRESETS, Length, Positive
from ..gates import L0Drop, compress
from ..model import Encoding, ModelConfig
from ..text import Batch, Item, collate, encode_examples
from .rules import DROPPED, RuleConfig, RuleRun, attendable, drop, dropped_units
from .training import train


def counted_attention(bart: PreTrainedModel, log_counts: Tensor) -> RemovableHandle:
    """Inside `with` of it, log_counts (B, R) are added to the logits of every cross-attention."""

    def add_log_counts(_: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["encoder_hidden_states"]  # (B*W, R, D): repeated for the W beams
        per_beam = log_counts.repeat_interleave(memory.size(0) // log_counts.size(0), 0)  # (B*W, R)
        # Algorithm 1, lines 6-8: a softmax with counts is a softmax of e + log c.  BART adds its
        # mask to e.
        mask = per_beam[:, None, None].to(memory.dtype)  # (B*W, 1, 1, R)
        return arguments, keywords | {"encoder_attention_mask": mask}

    return bart.get_decoder().register_forward_pre_hook(add_log_counts, with_kwargs=True)


class GatedBart(nn.Module):
    """D22: a pretrained BART with an L0Drop layer after its encoder.

    Without `gate` it is a baseline, or has a rule, which drops the units `dropped`.
    """

    def __init__(self, bart: PreTrainedModel, gate: bool = True, dropped: Collection[int] = ()):
        super().__init__()
        self.bart = bart
        self.width = bart.config.d_model
        self.dropped = dropped
        gates = [L0Drop(self.width)] if gate else []
        self.l0drop = nn.ModuleList(gates).to(bart.device, bart.dtype)
        self.pad = bart.config.pad_token_id
        self.bos = bart.config.decoder_start_token_id
        self.eos = bart.config.eos_token_id

    def encode(self, source: Tensor, hold_open: bool = False) -> Encoding:
        """As `Transformer.encode`; without gates those of a rule, which raises ids by DROPPED."""
        gates = (source < DROPPED).float()
        source = source % DROPPED
        keep = source != self.pad
        encoder = self.bart.get_encoder()
        states = encoder(input_ids=source, attention_mask=keep.long()).last_hidden_state
        if not self.l0drop:
            return Encoding(states, keep, [gates], [])
        gated, gates, log_alpha = self.l0drop[0](states)
        if hold_open:  # D19, D20
            return Encoding(states, keep, [torch.ones_like(gates)], [log_alpha])
        return Encoding(gated, keep, [gates], [log_alpha])

    def forward(
        self, source: Tensor, target_input: Tensor, hold_open: bool = False
    ) -> tuple[Tensor, Encoding]:
        """As `Transformer.forward`."""
        encoding = self.encode(source, hold_open)
        # Eq. (11): the decoder attends to the gated states, zeros included.
        output = self.bart(
            encoder_outputs=BaseModelOutput(encoding.states),
            attention_mask=attendable(encoding).long(),
            decoder_input_ids=target_input,
            use_cache=False,
        )
        return output.logits, encoding

    @torch.inference_mode()
    def generate(self, source: Tensor, **generation) -> tuple[Tensor, Encoding]:
        """Tokens (B, T) by the model's own `generate`; `generation` wins over its settings."""
        if self.training:
            raise ValueError(
                "the model is in training mode, where gates are sampled: call model.eval() first"
            )
        encoding = self.encode(source)
        states, log_counts = compress(encoding.states, encoding.gates[-1], attendable(encoding))
        outputs = BaseModelOutput(states)
        mask = log_counts.isfinite().long()
        with counted_attention(self.bart, log_counts):
            tokens = self.bart.generate(encoder_outputs=outputs, attention_mask=mask, **generation)
        return tokens, encoding


# Runs


@dataclass(frozen=True)
class GatedBartConfig(RuleConfig):
    """A run's config with a BART in place of the model's sizes; defaults suit 2,000 documents."""

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
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag} {value} does not go with a BART: leave it out")


class BartRun(RuleRun):
    """A run with a GatedBart."""

    def encode(self, examples: Sequence[Example]) -> list[Item]:
        sizes = self.config.max_source, self.config.max_target
        items = encode_examples(examples, self.tokenizer, *sizes, self.model.eos)
        return drop(self, examples, items)

    def collate(self, items: Sequence[Item]) -> Batch:
        return collate(items, self.model.bart.device, self.model.pad, self.model.bos)

    def decode(self, items: Sequence[Item], **generation) -> tuple[list[str], Encoding]:
        """As the core's, by the BART's `generate` and its settings, or those given."""
        tokens, encoding = self.model.generate(self.collate(items).source, **generation)
        texts = self.tokenizer.decode_batch(tokens.tolist(), skip_special_tokens=True)
        return [" ".join(text.split()) for text in texts], encoding

    def write_files(self, folder: Path) -> None:
        super().write_files(folder)
        self.model.bart.config.save_pretrained(folder / "model")
        self.model.bart.generation_config.save_pretrained(folder / "model")


def begin(config: GatedBartConfig, examples: Sequence[Example]) -> BartRun:
    """A pretrained BART with new gates; ValueError: not a BART, or unfit."""
    longest = max(config.max_source, config.max_target)
    bart, wrapped = pretrained.load("bart", config.bart, positions=longest)
    pretrained.generation(bart, config.max_target)
    tokenizer = wrapped.backend_tokenizer
    start = wrapped("").tokens()[0]  # before a text; `encode_examples` adds its end
    special = [(start, tokenizer.token_to_id(start))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", special_tokens=special
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a "</s>" that stands in a text is text
    model = GatedBart(bart, config.l0drop != "none", dropped_units(config, examples, tokenizer))
    return BartRun(config, model, tokenizer)


def load_run(folder: str | Path) -> BartRun:
    """Read a finished run, its model in eval mode on the CPU; ValueError as `loading.load_run`."""
    folder = Path(folder)
    config = read_config(folder, GatedBartConfig)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    bart = BartForConditionalGeneration(BartConfig.from_pretrained(folder / "model"))
    bart.generation_config = GenerationConfig.from_pretrained(folder / "model")
    dropped = frozenset(json.loads((folder / "rule.json").read_text()))
    model = GatedBart(bart, config.l0drop != "none", dropped)
    load_weights(model, folder / "model.safetensors")
    return BartRun(config, model.eval(), tokenizer)


# Outputs


@dataclass
class Options(core.Options):
    """The command line of `predict`."""

    beam: Positive | None = None  # Hypotheses of the search; none: the BART's own.
    # Of the search; none: the BART's own.
    length_penalty: float | None = None
    max_length: Length | None = None  # Longest output in tokens; none: the BART's own.


def predict_main(arguments: Sequence[str]) -> None:
    """As the core's `main`; scored by ROUGE."""
    options = read_flags(Options, arguments, __doc__)
    run = load_run(options.run)
    data = options.data or (run.config.data if options.split else "")
    examples = read(options.files, data, options.split or "test", options.limit)
    flags = {
        "num_beams": options.beam,
        "length_penalty": options.length_penalty,
        "max_length": options.max_length,
    }
    pretrained.generation(run.model.bart, run.config.max_target, **flags)
    run.model.to(find_device(options.device))
    is_packed = pack(run.model)  # last: a packed model can only decode
    documents = [example for example in examples if example.document]
    rows = core.predict(run, documents, options.batch_size)
    metric = "rouge" if options.metric == "auto" else options.metric
    core.write(options, run, rows, examples, metric)
    if is_packed:
        print("decoded with packed weights (shared/pack.py)", file=sys.stderr)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command, *flags = (sys.argv[1:] if arguments is None else arguments) or [""]
    if command == "train":
        train(*parse(flags, GatedBartConfig, PRESETS, __doc__), begin, "bart")
    elif command == "predict":
        predict_main(flags)
    elif command in ("-h", "--help"):
        print(__doc__, "Flags: train --help, predict --help", sep="\n")
    else:
        raise ValueError("begin with train or predict, then their flags, or --help")


if __name__ == "__main__":
    main()
