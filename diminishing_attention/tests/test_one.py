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
    """one.py's model and the package's with the same weights, for which attention is sharp."""
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
    """Loss and gradients around each; then attention, weights and probabilities of every word."""
    rng = random.Random(0)
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in pair]
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

    def repeats(blocking: bool) -> list[bool]:
        texts = one.write(model, source, blocking)[0].tolist()
        grams = [list(zip(row, row[1:], row[2:], strict=False)) for row in texts]
        return [len(set(row)) < len(row) for row in grams]

    assert any(repeats(blocking=False)) and not any(repeats(blocking=True))


def test_a_trip_from_its_other_end_is_told_again_and_the_end_ends_a_text():
    def numbers(text: str) -> list[int]:
        return [one.WORDS.index(word) for word in text.split()]

    told = "rome lima rome . lima rome lima . oslo cairo oslo . rome lima . "
    text = numbers(told + "</s> bern quito bern .")
    wanted = "oslo cairo oslo . rome lima rome . bern quito bern . kyiv accra kyiv . </s>"
    targets = torch.tensor([[one.BOS, *numbers(wanted)]])
    lima, oslo = {"rome", "lima"}, {"oslo", "cairo"}
    assert one.trips(text) == [lima, lima, oslo, lima]
    assert one.measure(torch.tensor([text]), targets) == (50, 50)
    assert one.measure(torch.full((1, 20), one.EOS), targets) == (0, 0)


SOURCE = Path(one.__file__).read_text(encoding="utf-8")
TOP, MARK, REST = SOURCE.partition("\nWORDS = ")
REST = MARK + REST


def changed(**constants) -> ModuleType:
    """one.py with other values of the constants at its top, the rest tiny."""
    module = ModuleType("one_changed")
    exec(TOP, vars(module))
    vars(module).update(dict(UPDATES=2, MORE=2, BATCH=4, TEXTS=4, D=8, H=8) | constants)
    exec(REST, vars(module))
    return module


def noted(monkeypatch, module: ModuleType, name: str) -> list[tuple]:
    """(arguments, result) of each later call of a function of the module."""
    calls, function = [], getattr(module, name)

    def noting(*arguments, **options):
        result = function(*arguments, **options)
        calls.append(([*arguments, *options.values()], result))
        return result

    monkeypatch.setattr(module, name, noting)
    return calls


@pytest.mark.parametrize("change", [
    dict(TRIPS=1), dict(TRIPS=6), dict(D=5, H=9), dict(UPDATES=2, MORE=0), dict(BATCH=1, TEXTS=1),
    dict(RATE=1e-3, MORE_RATE=1e-4), dict(EPSILON=1e-6), dict(LAMBDA=0.0), dict(seed=7),
    dict(SYSTEMS={"older": "coverage", "DimAttn": "dim"}, TRIPS=2),
], ids=str)  # fmt: skip
def test_each_constant_can_be_changed(change, capsys, monkeypatch):
    """Texts have the length that the trips need, and the table is of these systems."""
    module = changed(**change)
    drawn = noted(monkeypatch, module, "draw")
    module.main()
    for _, (sources, targets) in drawn:
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
        (dict(TRIPS=0), "TRIPS is 0; the 40 cities make 1 to 20 trips"),
        (dict(TRIPS=21), "TRIPS is 21; the 40 cities make 1 to 20 trips"),
        (dict(CITIES="rome oslo rome bern", TRIPS=1), "CITIES has a word twice"),
        (dict(D=0), "D, H, BATCH and TEXTS are at least 1"),
        (dict(TEXTS=0), "D, H, BATCH and TEXTS are at least 1"),
        (dict(UPDATES=-1), "UPDATES and MORE at least 0"),
        (dict(EPSILON=0.0), "EPSILON is above 0"),
        (dict(LAMBDA=-1.0), "LAMBDA at least 0"),
        (
            dict(SYSTEMS={"older": "cov"}),
            "SYSTEMS needs .* mechanisms of none, coverage, dim, dydim",
        ),
    ],
    ids=str,
)
def test_a_constant_that_cannot_work_is_refused_before_training(change, message, monkeypatch):
    module = changed(**change)
    monkeypatch.setattr(module, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(SystemExit, match=message):
        module.main()


def test_main_prints_what_it_computed_on_texts_that_no_training_saw(capsys, monkeypatch):
    """Each row is of its own model and search, each of the last lines a difference of two rows."""
    module = changed()
    names = ("draw", "train", "write")
    drawn, trained, written = (noted(monkeypatch, module, name) for name in names)
    made_up = [module.Measured(*values) for values in torch.rand(5, 2).mul(100).tolist()]
    values = iter(made_up)
    monkeypatch.setattr(module, "measure", lambda *_: next(values))
    module.main()
    ([count, _], (sources, _)), *of_training = drawn
    assert count == module.TEXTS
    rows = {tuple(row) for _, (texts, _) in of_training for row in texts.tolist()}
    assert len(of_training) == 2 * 5 and rows.isdisjoint(map(tuple, sources.tolist()))
    (first, base), *others = trained
    assert first == [2, 8e-3]
    assert all(given == [2, 2e-3, base, given[3]] for given, _ in others)
    models = {given[3]: model for given, model in others}
    assert {*models} == {*module.KINDS} and len(others) == 4
    kinds = [("none", False), ("none", True), ("coverage", False), ("dim", False), ("dydim", False)]
    searches = [[models[kind], sources, blocking] for kind, blocking in kinds]
    assert all(
        given[0] is wanted[0] and given[1] is sources and given[2] == wanted[2]
        for (given, _), wanted in zip(written, searches, strict=True)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("0.32 0.24 0.19 0.16")  # log(1 + 0.6 t): from the second look on
    names = ["no mechanism", "trigrams blocked", "coverage", "DimAttn", "DyDimAttn"]
    for line, name, value in zip(lines[2:7], names, made_up, strict=True):
        assert line == f"{name:18}{value.again:10.1f}{value.told:12.1f}"
    others, ours = names[:3] + names[4:], made_up.pop(3)
    for line, name, value in zip(lines[7:11], others, made_up, strict=True):
        again, told = ours.again - value.again, ours.told - value.told
        said = f"DimAttn minus {name}: told again {again:+.1f} points, trips told {told:+.1f}"
        assert line == said


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
