"""Every flag of train does something: with another value two updates give other weights."""

from dataclasses import fields, replace

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from ..config import TrainConfig
from .conftest import BERT, SMALL

TINY = dict(data="toy:count=6,seed=5", steps=2, save_every=2)
BASES = {
    "pointer": replace(SMALL, **TINY),
    "dim": replace(SMALL, **TINY, diminishing="dim"),
    "dydim": replace(SMALL, **TINY, diminishing="dydim"),
    "bertsum": replace(BERT, **TINY),
}
OTHER = {  # base: another value of each flag
    "pointer": dict(
        data="toy:count=6,seed=6",
        max_source=5,
        max_target=4,
        coverage=True,
        diminishing="dim",
        vocabulary=60,
        hidden=9,
        steps=3,
        batch_size=3,
        batch_tokens=30,
        accumulate=2,
        optimizer="adagrad",
        learning_rate=0.1,
        warmup=9,
        seed=1,
        initial_values="torch",
        mixed_precision="bf16",
    ),
    "dim": dict(f="sqrt"),
    "dydim": dict(f="sqrt"),
    "bertsum": dict(
        layers=3,
        feed_forward=9,
        dropout=0.5,
        encoder_learning_rate=0.5,
        encoder_warmup=9,
    ),
}
NOT_HERE = {
    "init": "test_train: the mechanism is switched on after the base",
    "encoder": "test_train: a pretrained encoder from a folder",
    "save_every": "says when, not what",
    "model": "test_train: values that contradict are refused",
    "width": "test_train: a pretrained encoder from a folder",
    "log_with": "test_train: a tracker gets the rows of the log",
}


@pytest.mark.parametrize(("base", "flag"), [(base, flag) for base in OTHER for flag in OTHER[base]])
def test_another_value_gives_other_weights(trained, base, flag):
    configs = BASES[base], replace(BASES[base], **{flag: OTHER[base][flag]})
    one, other = (load_file(trained(config) / "model.safetensors") for config in configs)
    is_same = one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) for name in one
    )
    assert not is_same


def test_no_flag_is_left_out():
    tried = {flag for flags in OTHER.values() for flag in flags}
    assert sorted([*tried, *NOT_HERE]) == sorted(field.name for field in fields(TrainConfig))
