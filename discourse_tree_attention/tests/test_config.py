"""What defines a run: presets with their sources, sizes, the rate; that each flag counts."""

from dataclasses import fields, replace

import pytest

from .. import model, text
from ..config import PRESETS, TrainConfig, learning_rate


def test_d11_learning_rate_is_a_factor():
    """D11, Section 5.1: factor times min(n^-0.5, n warmup^-1.5).

    It rises to factor / sqrt(warmup), then falls.
    """
    config = TrainConfig(learning_rate=0.01, warmup=400)
    assert learning_rate(399, config) == pytest.approx(0.01 / 20)
    assert learning_rate(0, config) == pytest.approx(0.01 / 400**1.5)
    assert learning_rate(1599, config) == pytest.approx(0.01 / 40)


def test_d20_d26_presets_hold_these_values():
    """D20: this repository's values for small data; D26: Vaswani et al. in the paper's."""
    paper = dict(
        data="cnn_dailymail_trees",  # Section 5.1: CNN/DM
        encoder="bert-base-uncased",  # Section 3: BERT; released code
        learning_rate=0.01,  # Section 5.1; D11: a factor
        warmup=4000, beta2=0.98,  # Section 5.1, following Vaswani et al. (2017)
        steps=24_000, batch_size=32, save_every=300, max_pieces=1000,  # released code; D20
        max_words=80,  # released code; D8
    )  # fmt: skip
    # Section 5.2, released code: 1,000 documents are 31 batches; a warm-up of 2 epochs of 15.
    low = paper | dict(examples=1000, warmup=2 * 31, save_every=31, steps=15 * 31, beta2=0.999)
    small = dict(steps=240, batch_size=8, learning_rate=0.002, warmup=50, save_every=20)
    papers = {"paper": paper, "paper-balanced": paper | dict(balanced=True)}
    assert PRESETS == {"tiny": {}, "small": small, **papers, "paper-low-resource": low}
    defaults = TrainConfig()
    levels = [TrainConfig(level="edu"), TrainConfig(level="sentence"), TrainConfig(units_taken=2)]
    assert [config.count for config in levels] == [6, 3, 2]  # Section 5.1
    for values in PRESETS.values():
        replace(defaults, **values).check()
    sizes = defaults.model_config(768)
    assert (sizes.layers, sizes.dropout, model.CLASSIFIER, sizes.dense_inner) == (2, 0.1, 100, 512)
    assert (model.PLACES, model.POSITIONS, text.MAX_TOKENS) == (512, 1000, 512)
    assert defaults.pooling == "cls" and defaults.beta2 == 0.999


def test_d16_sizes_keep_the_papers_proportions():
    """D16: at D = 768 Section 5.1 exactly; else in proportion, but heads of 64 by default."""
    for width, default, balanced in ((768, (64, 3072), (512, 512)), (384, (64, 1536), (256, 256))):
        for given, sizes in ((False, default), (True, balanced)):
            model = TrainConfig(balanced=given).model_config(width)
            assert (model.width, model.head_width, model.feed_forward) == (width, *sizes)


SMALL = dict(
    data="toy:signal=0,count=4,max_sentences=8", attention="dot", steps=2, batch_size=2,
    save_every=2, warmup=2,
)  # fmt: skip
CHANGES = dict(
    data="toy:signal=0,count=5,max_sentences=8", level="sentence", examples=3, pooling="mean",
    max_pieces=60, attention="dense", heads=2, balanced=True, steps=1, batch_size=3,
    learning_rate=0.1, warmup=1, beta2=0.5, mixed_precision="bf16", seed=1, units_taken=1,
    max_words=5,
)  # fmt: skip
# Not tried here: `encoder` (test_predict.py), `save_every` (which step is the best), `log_with`.
ELSEWHERE = {"encoder", "save_every", "log_with"}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What a training of two updates leaves: its weights, then the extracts of its model."""
    pytest.importorskip("shared")
    from accelerate.state import AcceleratorState
    from safetensors.torch import load_file

    from ..loading import load, load_run
    from ..predict import predict
    from ..train import train

    def outcome(**changes):
        AcceleratorState._reset_state(reset_partial_state=True)
        folder = tmp_path_factory.mktemp("run") / "run"
        train(TrainConfig(**SMALL | changes), folder)
        weights = load_file(folder / "model.safetensors")
        yield {name: tensor.tolist() for name, tensor in weights.items()}
        yield list(predict(load_run(folder), load(SMALL["data"], "test")))

    return outcome


def test_every_flag_changes_the_weights_or_the_extracts(outcome):
    assert set(CHANGES) | ELSEWHERE == {field.name for field in fields(TrainConfig)}
    plain = list(outcome())
    assert list(outcome()) == plain
    for name, value in CHANGES.items():
        changed = zip(outcome(**{name: value}), plain, strict=True)
        assert any(one != other for one, other in changed), name
