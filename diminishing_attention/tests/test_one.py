"""one.py is the package's mathematics, works with other constants, and shows the effect."""

import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from .. import one
from ..diminishing import Diminishing, coverage_value, effective_coverage
from ..model import PointerGenerator
from ..text import Batch


@pytest.fixture(params=one.KINDS)
def pair(request):
    """one.py's model and the package's with the same weights, far from their initial values:
    attention is sharp.
    """
    kind = request.param
    torch.manual_seed(0)
    small = one.PointerGenerator(kind)
    torch.nn.init.normal_(small.decoder.score.weight, std=0.5)
    mechanism = (Diminishing(), True) if kind == "coverage" else (Diminishing(kind),)
    large = PointerGenerator(one.V, one.D, one.H, *mechanism)
    large.load_state_dict(small.state_dict())
    return small, large


def as_batch(source: torch.Tensor, target: torch.Tensor) -> Batch:
    return Batch(source, source >= 0, target[:, :-1], target[:, 1:], target[:, 1:] >= 0, 0)


def test_the_functions_of_the_idea_are_equal():
    attention = (3 * torch.randn(2, 7, 5)).softmax(-1)  # (B, T, S)
    for f, name in ((one.log, "log"), (one.sqrt, "sqrt")):
        torch.testing.assert_close(
            one.coverage_value(attention, f), coverage_value(attention, name)
        )
    want = {kind: Diminishing(kind).sequence(attention) for kind in one.MECHANISM}
    coverage = peak = total = torch.zeros(2, 5)
    for step, looks in enumerate(attention.unbind(1)):
        peak = torch.maximum(peak, looks)
        for kind, mechanism in one.MECHANISM.items():
            torch.testing.assert_close(mechanism(looks, coverage, peak), want[kind][:, step])
        total, coverage = total + one.gain(looks, coverage), coverage + looks
        torch.testing.assert_close(total, effective_coverage(attention)[:, step])  # Eq. (11)
    assert (want["dim"] - want["dydim"]).abs().max() > 0.1


def test_three_updates_are_equal(pair):
    """Loss and gradients before and after each; then attention, weights and probabilities of every
    word.
    """
    rng, optimizers = (
        random.Random(0),
        [torch.optim.Adam(model.parameters(), 1e-3) for model in pair],
    )
    for _ in range(4):
        source, target = one.draw(8, rng)
        losses = pair[0](source, target), pair[1](as_batch(source, target))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        gradients = [
            {name: weight.grad for name, weight in model.named_parameters()} for model in pair
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    small, large = pair
    read, past = small.start(source)
    large_read, large_past = large.start(as_batch(source, target))
    steps = large.run(as_batch(source, target))
    for t, word in enumerate(target.T[:-1]):
        step, past = small.decoder(word, read, past)
        want = steps.attention[:, t], steps.copying[:, t]
        torch.testing.assert_close((step.attention, step.weights), want, rtol=0, atol=1e-5)
        log_p, large_past = large.step(word, large_read, large_past)
        torch.testing.assert_close(step.p, log_p.exp(), rtol=0, atol=1e-5)


def test_blocking_writes_no_three_words_twice():
    torch.manual_seed(0)
    model, (source, _) = one.PointerGenerator(), one.draw(8, random.Random(0))
    free, blocked = (one.write(model, source, blocking)[0].tolist() for blocking in (False, True))
    grams = [
        [list(zip(row, row[1:], row[2:], strict=False)) for row in words]
        for words in (free, blocked)
    ]
    assert any(len(set(row)) < len(row) for row in grams[0]) and all(
        len(set(row)) == len(row) for row in grams[1]
    )


def test_a_trip_from_its_other_end_is_told_again_and_the_end_ends_a_text():
    number = one.WORDS.index
    text = [
        number(word)
        for word in "rome lima rome . lima rome lima . oslo cairo oslo . rome lima . </s> bern quito bern .".split()
    ]
    wanted = [
        number(word)
        for word in "oslo cairo oslo . rome lima rome . bern quito bern . kyiv accra kyiv . "
        "</s>".split()
    ]
    nothing = torch.tensor([[one.EOS] * len(text)])
    assert one.measure(nothing, torch.tensor([[one.BOS, *wanted]])) == (0, 0)
    assert one.trips(text) == [
        {"rome", "lima"},
        {"rome", "lima"},
        {"oslo", "cairo"},
        {"rome", "lima"},
    ]
    assert one.measure(torch.tensor([text]), torch.tensor([[one.BOS, *wanted]])) == (50, 50)


SOURCE = Path(one.__file__).read_text(encoding="utf-8")
TINY = {"UPDATES, MORE": "2, 2", "BATCH, TEXTS": "4, 4", "D, H": "8, 8"}


def with_constants(**changes: str) -> ModuleType:
    """one.py with other values in the lines of its constants, the rest tiny."""
    source = SOURCE
    for name, value in (
        TINY | {name.replace("__", ", "): v for name, v in changes.items()}
    ).items():
        (line,) = [line for line in SOURCE.splitlines() if line.startswith(f"{name} = ")]
        source = source.replace(f"\n{line}\n", f"\n{name} = {value}\n")
    module = ModuleType("changed")
    exec(compile(source, "one.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize(
    "change",
    [
        {"TRIPS": "1"},
        {"TRIPS": "6"},
        {"D__H": "5, 9"},
        {"UPDATES__MORE": "2, 0"},
        {"RATE__MORE_RATE": "1e-3, 1e-4"},
        {"BATCH__TEXTS": "1, 1"},
        {"EPSILON": "1e-6"},
        {"LAMBDA": "0.0"},
        {"seed": "7"},
        {"SYSTEMS": '{"older": "coverage"}', "TRIPS": "2"},
    ],
    ids=str,
)
def test_each_constant_can_be_changed(change, capsys, monkeypatch):
    """Texts have the length that the trips need, and the table is of these systems."""
    module = with_constants(**change)
    drawn = []
    draw = module.draw
    monkeypatch.setattr(module, "draw", lambda *a: drawn.append(draw(*a)) or drawn[-1])
    module.main()
    for sources, targets in drawn:
        assert sources.shape[1] == 3 * module.TRIPS and targets.shape[1] == 4 * module.TRIPS + 2
        assert all(len(set(module.trips(text))) == module.TRIPS for text in targets.tolist())
    lines = capsys.readouterr().out.splitlines()
    assert [line[:18].strip() for line in lines[2 : 2 + len(module.SYSTEMS)]] == [*module.SYSTEMS]
    assert module.measure(targets, targets) == (0, 100)
    words, _ = module.write(module.PointerGenerator(), sources)
    assert words.shape == targets[:, 1:].shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"TRIPS": "0"}, "TRIPS is 0; the 40 cities make 1 to 20 trips"),
        ({"TRIPS": "21"}, "TRIPS is 21; the 40 cities make 1 to 20 trips"),
        ({"D__H": "0, 8"}, "D, H, BATCH and TEXTS are at least 1"),
        ({"BATCH__TEXTS": "8, 0"}, "D, H, BATCH and TEXTS are at least 1"),
        ({"UPDATES__MORE": "-1, 2"}, "UPDATES and MORE at least 0"),
        ({"EPSILON": "0.0"}, "EPSILON is above 0"),
        ({"LAMBDA": "-1.0"}, "LAMBDA at least 0"),
        (
            {"SYSTEMS": '{"older": "cov"}'},
            "SYSTEMS needs .* mechanisms of none, coverage, dim, dydim",
        ),
    ],
    ids=str,
)
def test_a_constant_that_cannot_work_is_refused_before_training(change, message, monkeypatch):
    module = with_constants(**change)
    monkeypatch.setattr(module, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(SystemExit, match=message):
        module.main()


def test_main_prints_what_it_computed_on_texts_that_no_training_saw(capsys, monkeypatch):
    """Each row is of its own model and search, each of the last lines a difference of two rows."""
    module = with_constants()
    texts, trained, written, values = [], [], [], []
    draw, train, write = module.draw, module.train, module.write

    def record_train(updates, rate, base=None, kind="none"):
        trained.append((updates, rate, base in models, kind))
        models.append(train(updates, rate, base, kind))
        return models[-1]

    def record_draw(count, rng):
        texts.append(draw(count, rng))
        return texts[-1]

    def record_write(model, sources, blocking=False):
        written.append((model.decoder.kind, blocking))
        assert sources is texts[0][0]
        return write(model, sources, blocking)

    def made_up(words, targets):
        assert targets is texts[0][1]
        values.append(module.Measured(*torch.rand(2).mul(100).tolist()))
        return values[-1]

    models = []
    stand_ins = {"draw": record_draw, "train": record_train, "write": record_write}
    for name, stand_in in (stand_ins | {"measure": made_up}).items():
        monkeypatch.setattr(module, name, stand_in)
    module.main()
    assert trained[0] == (2, 8e-3, False, "none")
    later = [(2, 2e-3, True, kind) for kind in ("coverage", "dim", "dydim", "none")]
    assert sorted(trained[1:], key=lambda call: call[3]) == later
    rows = {tuple(row) for sources, _ in texts[1:] for row in sources.tolist()}
    assert len(texts) == 1 + 2 * 5 and rows.isdisjoint(map(tuple, texts[0][0].tolist()))
    kinds = [("none", False), ("none", True), ("coverage", False), ("dim", False), ("dydim", False)]
    assert written == kinds
    lines = capsys.readouterr().out.splitlines()
    names = ["no mechanism", "trigrams blocked", "coverage", "DimAttn", "DyDimAttn"]
    table = [
        f"{name:18}{v.again:10.1f}{v.told:12.1f}" for name, v in zip(names, values, strict=True)
    ]
    assert lines[2:7] == table
    ours = values.pop(3)
    for line, name, value in zip(lines[7:], names[:3] + names[4:], values, strict=False):
        again, told = ours.again - value.again, ours.told - value.told
        said = f"DimAttn minus {name}: told again {again:+.1f} points, trips told {told:+.1f}"
        assert line == said
    assert lines[0].endswith("0.32 0.24 0.19 0.16")  # log(1 + 0.6 t): from the second look on


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the mean difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = {line[:18].strip(): line.split()[-2:] for line in run.stdout.splitlines()[2:7]}
    again, told = ({name: float(row[i]) for name, row in rows.items()} for i in (0, 1))
    for mechanism in ("DimAttn", "DyDimAttn", "coverage"):
        assert again[mechanism] < again["no mechanism"] - 7
        assert told[mechanism] > told["no mechanism"] + 7
    for mechanism in ("DimAttn", "DyDimAttn"):
        assert again[mechanism] < again["trigrams blocked"] - 2
        assert told[mechanism] > told["trigrams blocked"] + 7
