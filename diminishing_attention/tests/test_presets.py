"""Every value of every preset, their sizes and optimisers; constants of the papers."""

import inspect
from dataclasses import asdict, replace

import pytest
import torch

pytest.importorskip("shared")

from shared.data import load
from shared.run import check

from .. import train as training
from ..bertsum.bertsum import BertSumExtAbs, new_encoder
from ..config import DECODING, PRESETS, TrainConfig, learning_rate
from ..loading import begin, load_run, new_model
from ..train import make_optimizer
from .conftest import BERT, SMALL

BERTSUM = dict(  # Section 2.3; PreSumm
    model="bertsum-abs",
    data="cnn_dailymail",
    encoder="bert-base-uncased",
    layers=6,
    feed_forward=2048,
    dropout=0.2,
    max_source=512,
    max_target=140,
    steps=200_000,
    batch_tokens=140,
    batch_size=6,
    accumulate=20,
    learning_rate=0.1,
    warmup=10_000,
    encoder_learning_rate=2e-3,
    encoder_warmup=20_000,
    save_every=2000,
)
PHASE = dict(init="a run of --preset paper", steps=10_000)  # Section 4.2: less than 10,000 updates
VALUES = {  # all that is not the default, and some that is
    "tiny": {},
    "repetition": dict(data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400),
    "paper": dict(  # See et al., as in the code that Section 4.2 names
        data="cnn_dailymail",
        vocabulary=50_000,
        hidden=256,
        max_source=400,
        max_target=100,
        steps=230_000,
        batch_size=8,
        optimizer="adagrad",
        learning_rate=0.15,
        save_every=5000,
    ),
    "paper-dim": PHASE | dict(diminishing="dim", max_source=600),
    "paper-dydim": PHASE | dict(diminishing="dydim", max_source=800),
    "paper-coverage": dict(init="a run of --preset paper", steps=3000, coverage=True),
    "bertsum-abs": dict(  # ours
        model="bertsum-abs",
        encoder="a BERT",
        layers=2,
        feed_forward=512,
        dropout=0.1,
        max_target=60,
        steps=600,
        learning_rate=0.03,
        warmup=200,
        encoder_warmup=200,
    ),
    "paper-bertsum-abs": BERTSUM,
    # TransformerAbs: new layers, one rate, 8,000 updates of warm-up, 300 tokens
    "paper-transformer": BERTSUM
    | dict(
        model="transformer",
        width=768,
        dropout=0.1,
        batch_tokens=300,
        learning_rate=0.05,
        warmup=8000,
        encoder_learning_rate=0.05,
        encoder_warmup=8000,
    ),
}


@pytest.mark.parametrize("name", sorted({*PRESETS, *VALUES}))
def test_every_value_of_a_preset(name):
    config = TrainConfig(**PRESETS[name])
    check(config)
    assert asdict(config) == asdict(TrainConfig()) | VALUES[name]


def test_constants_of_the_papers():
    """Section 4.2: f = log; See et al.: clip 2; PreSumm: 8 heads, label smoothing 0.1."""
    decoder = inspect.signature(BertSumExtAbs).parameters
    names = ("layers", "feed_forward", "dropout", "heads", "label_smoothing")
    defaults = [decoder[name].default for name in names]
    assert (TrainConfig().f, training.CLIP, defaults) == ("log", 2, [6, 2048, 0.2, 8, 0.1])


def test_d17_the_searches():
    """Section 4.2; See et al.: beam 4, 35 to 100 words; PreSumm's command."""
    names = ("beam", "length_penalty", "trigram_blocking", "min_length", "max_length")
    searches = {
        "tiny": (4, 0.0, False, 0, 100),
        "paper": (4, 0.0, False, 36, 100),
        "paper-dim": (6, 1.5, True, 36, 100),
        "paper-bertsum-abs": (5, 0.95, True, 51, 200),
    }
    for name, values in searches.items():
        assert dict(zip(names, values, strict=True)) == DECODING[name]
    assert searches.keys() == DECODING.keys()


@pytest.mark.parametrize(
    ("preset", "once", "by_parts"),
    [
        ("paper", 21_503_825, 27_903_825),  # Table 1: 27.9M, the shared embedding counted twice
        ("paper-coverage", 21_504_337, 27_904_337),  # +512
        ("paper-dim", 21_503_825, 27_903_825),  # none
        ("paper-dydim", 21_503_825, 27_903_825),
        ("paper-transformer", 128_251_962, 128_251_962),  # 128.2M
        ("paper-bertsum-abs", 180_222_522, 180_222_522),  # 180.2M, with BERT's pooler
    ],
)
def test_d27_params_of_table_1(preset, once, by_parts):
    from transformers import BertConfig, BertModel, BertTokenizer

    base = PRESETS["paper"] if "init" in PRESETS[preset] else {}
    config = TrainConfig(**base | PRESETS[preset])
    unused = BertTokenizer(vocab={f"[unused{i}]": i for i in range(3)} | {"[PAD]": 3, "[UNK]": 4})
    with torch.device("meta"):
        match config.model:
            case "pointer":
                model = new_model(config, range(config.vocabulary))
            case "bertsum-abs":
                model = new_model(config, unused, BertModel(BertConfig()))
            case "transformer":
                model = new_model(config, unused, new_encoder(30_522, 512, config))
    assert sum(parameter.numel() for parameter in model.parameters()) == once
    assert sum(parameter.numel() for part in model.parts() for parameter in part) == by_parts


def test_d8_optimizers_of_the_presets(bert):
    """D8: tiny has Adam; the paper's preset See et al.'s Adagrad; BERTSum's Adam PreSumm's eps."""
    model = begin(SMALL, load(SMALL.data)).model
    adam = make_optimizer(model, SMALL)
    assert type(adam) is torch.optim.Adam
    wanted = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}
    assert wanted.items() <= adam.defaults.items()
    assert make_optimizer(begin(BERT, load(BERT.data)).model, BERT).defaults["eps"] == 1e-9
    adagrad = make_optimizer(model, replace(SMALL, optimizer="adagrad"))
    assert type(adagrad) is torch.optim.Adagrad
    wanted = {"eps": 1e-10, "lr_decay": 0, "weight_decay": 0}
    assert wanted.items() <= adagrad.defaults.items()
    assert all((state["sum"] == 0.1).all() for state in adagrad.state.values()) and adagrad.state


def test_eq7_eq8_d9_two_groups_are_two_optimisers(trained):
    """D9: one Adam with two groups makes the updates of two Adams, each with its own rate."""
    run, twin = load_run(trained(BERT)), load_run(trained(BERT))
    optimizer = make_optimizer(run.model, BERT)
    rates = [(group["factor"], group["warmup"]) for group in optimizer.param_groups]
    assert rates == [(0.02, 4), (0.05, 4)]
    parts = [[p for p in part if p.requires_grad] for part in twin.model.parts()]
    two = [torch.optim.Adam(part, eps=1e-9) for part in parts]
    for group, own, rate in zip(optimizer.param_groups, two, (0.01, 0.1), strict=True):
        group["lr"] = own.param_groups[0]["lr"] = rate
    for _ in range(3):
        for one, other in zip(run.model.parameters(), twin.model.parameters(), strict=True):
            if one.requires_grad:
                one.grad = torch.randn(one.shape)
                other.grad = one.grad.clone()
        for each in (optimizer, *two):
            each.step()
    torch.testing.assert_close(run.model.state_dict(), twin.model.state_dict(), rtol=0, atol=0)
    encoder = [*run.model.encoder.parameters()]
    assert {*map(id, optimizer.param_groups[0]["params"])} == {*map(id, encoder)}


def test_eq7_eq8_learning_rates():
    """lr~ min(step^-0.5, step warmup^-1.5): rising to the warm-up's end, then falling."""
    for step in (1, 500, 10_000, 20_000, 150_000):
        want = 2e-3 * min(step**-0.5, step * 20_000**-1.5)
        assert learning_rate(step, 2e-3, 20_000) == pytest.approx(want)
    assert learning_rate(10_000, 0.1, 10_000) == pytest.approx(0.1 / 100)
    assert learning_rate(1, 0.15, 0) == learning_rate(9, 0.15, 0) == 0.15
