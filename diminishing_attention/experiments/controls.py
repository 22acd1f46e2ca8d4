"""Two controls of ours in the pointer-generator: one for copying by gains, one for their shrinking.

C=diminishing_attention.experiments.controls
python -m $C plain_copy train --out runs/c --init runs/pg --steps 150 --diminishing dim
python -m $C plain_copy predict runs/c --split test --out c.jsonl

What follows `train` or `predict` are that command's flags. A run of a control has one more name
among its weights, so that the ordinary commands refuse it.
"""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from shared.run import one_line_errors

from .. import model, predict, train
from ..diminishing import Diminishing, DiminishingState


def rescale(weights: Tensor) -> Tensor:
    """Weights that sum to 1, or to 0 where there is nothing."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


class PlainCopy(model.Decoder):
    """D23: words are copied by plain attention, and the gains read the context alone."""

    def forward(self, *arguments) -> tuple[model.Step, model.Past]:
        step, past = super().forward(*arguments)
        return step._replace(copying=step.attention), past


class Rescaled(Diminishing):
    """Gains that are made to sum to 1 again."""

    def step(self, attention: Tensor, state: DiminishingState) -> tuple[Tensor, DiminishingState]:
        gain, state = super().step(attention, state)
        return rescale(gain), state


class Renormalised(model.Decoder):
    """The gains no longer shrink (D1)."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.diminishing = Rescaled(**vars(self.diminishing))


CONTROLS = {"plain_copy": PlainCopy, "renormalised": Renormalised}


def decoder_of(control: str) -> type[model.Decoder]:
    """A decoder that weighs context and copying by one of CONTROLS, whose weights name it."""

    class Control(CONTROLS[control]):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.register_buffer(control, torch.zeros(()))
            # A run without the control may be its --init.
            self.register_load_state_dict_pre_hook(
                lambda _, state, prefix, *__: state.setdefault(prefix + control, torch.zeros(()))
            )

    return Control


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"train": train, "predict": predict}
    if len(given) < 2 or given[0] not in CONTROLS or given[1] not in commands:
        raise ValueError(
            f"say which control ({', '.join(CONTROLS)}), then train or predict, then its flags"
        )
    plain, model.Decoder = model.Decoder, decoder_of(given[0])
    try:
        commands[given[1]].main(given[2:])
    finally:
        model.Decoder = plain


if __name__ == "__main__":
    main()
