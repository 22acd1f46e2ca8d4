"""one.py is the package's mathematics, and shows the effect."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .. import gates, one
from ..model import PAD, ModelConfig, Transformer, objective


@pytest.fixture
def pair():
    """one.py's model and the package's with the same weights; some gates are closed for good."""
    small = one.Transformer(has_gates=True)
    torch.nn.init.normal_(small.l0drop[0].predictor.weight, std=0.4)
    sizes = dict(
        vocabulary=one.V,
        width=one.D,
        feed_forward=one.INNER,
        heads=one.H,
        encoder_layers=1,
        decoder_layers=1,
    )
    large = Transformer(ModelConfig(**sizes, residual_dropout=0.0, attention_dropout=0.0))
    large.load_state_dict(small.state_dict())
    return small, large


def ragged_batch(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    source, target_input, target = one.sentences(8, generator)
    is_padding = torch.arange(21) >= torch.arange(14, 22).unsqueeze(-1)
    return source.masked_fill(is_padding, PAD), target_input, target


def test_the_functions_of_the_idea_are_equal():
    log_alpha = torch.randn(5, 9) * 4
    keep = torch.rand(5, 9) < 0.8
    states = torch.randn(5, 9, one.D)
    torch.manual_seed(1)
    drawn = one.sample_gates(log_alpha)
    torch.manual_seed(1)
    torch.testing.assert_close(drawn, gates.sample_gates(log_alpha))
    torch.testing.assert_close(one.expected_gates(log_alpha), gates.expected_gates(log_alpha))
    torch.testing.assert_close(one.open_probability(log_alpha), gates.open_probability(log_alpha))
    torch.testing.assert_close(one.l0_penalty(log_alpha, keep), gates.l0_penalty(log_alpha, keep))
    memory, (rows, counts) = gates.compress(states, drawn, keep), one.compress(states, drawn, keep)
    torch.testing.assert_close((rows, counts.log()), (memory.states, memory.log_counts))
    assert ((drawn == 0) & keep).any() and (drawn == 1).any()


def test_three_updates_are_equal(pair):
    """Loss, gradients and outputs, on padded sources, with the same noise in the gates."""
    generator = torch.Generator().manual_seed(0)
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in pair]
    small, large = pair
    for step in range(4):
        source, target_input, target = ragged_batch(generator)
        torch.manual_seed(step)
        logits, log_alpha = small.train()(source, target_input, source != PAD)
        loss = one.objective(logits, target, log_alpha, source != PAD, 0.7)
        torch.manual_seed(step)
        large_logits, encoding = large.train()(source, target_input)
        large_loss = objective(large_logits, target, encoding, 0.7)
        torch.testing.assert_close((logits, loss), (large_logits, large_loss), rtol=1e-5, atol=1e-5)
        for optimizer, each in zip(optimizers, (loss, large_loss), strict=True):
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
        gradients = [
            {name: weight.grad for name, weight in model.named_parameters()} for model in pair
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_algorithm_1_is_what_the_package_reads_at_test_time(pair):
    small, large = (model.eval() for model in pair)
    source, target_input, _ = ragged_batch(torch.Generator().manual_seed(5))
    states, gate, _ = small.encode(source)
    logits = small.decode(target_input, *one.compress(states, gate, source != PAD))
    torch.testing.assert_close(logits, large(source, target_input)[0], rtol=1e-4, atol=1e-5)
    assert 0.1 < (gate == 0)[source != PAD].float().mean() < 0.9


NUMBERS = r"(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$"  # a row's five shares


def changed_copy(**constants) -> dict:
    """The names of one.py with other constants at its top, two updates and ten test sentences."""
    text = Path(one.__file__).read_text(encoding="utf-8").replace("sentences(500,", "sentences(10,")
    for name, value in {"BEFORE": 2, "AFTER": 2, **constants}.items():
        # `A, B = 1, 2` becomes `A, B = 1, 2; B = value`
        line = rf"(?m)^((?:\w+, )*{name}(?:, \w+)* = [^#\n]*)"
        text, count = re.subn(line, rf"\1; {name} = {value!r}  ", text, count=1)
        assert count == 1, name
    names = {"__name__": "changed"}
    exec(compile(text, "one.py", "exec"), names)
    return names


CHANGES = [
    dict(seed=3),
    dict(FILLER="um er"),
    dict(NOUNS="cat dog cow"),
    dict(FILLERS=3),
    dict(FILLERS=1, PHRASES=1),
    dict(PHRASES=6),
    dict(D=12, H=2),
    dict(H=1),
    dict(INNER=5),
    dict(BETA=1.5),
    dict(EPSILON=0.4),
    dict(LAMBDA=0),
    dict(BEFORE=1),
    dict(AFTER=1),
]


@pytest.mark.parametrize("constants", CHANGES, ids=lambda each: "-".join(each))
def test_each_constant_can_be_changed_alone(constants, capsys):
    changed = changed_copy(**constants)
    changed["main"]()
    lines = capsys.readouterr().out.splitlines()
    shares = [re.search(NUMBERS, line).groups() for line in lines[1:6]]
    assert all(0 <= int(share) <= 100 for row in shares for share in row)
    names = [line[:26].strip() for line in lines[4:6]]
    assert names == ["gates, update 0", f"gates, update {changed['AFTER']}"]
    source, target_input, target = changed["sentences"](7, torch.Generator().manual_seed(1))
    phrases = changed["PHRASES"]
    assert source.shape == (7, changed["FILLERS"] + 2 * phrases + 1)
    assert target_input.shape == target.shape == (7, 2 * phrases + 1)
    assert source.max() < changed["V"] and (source >= changed["NOUN"]).sum() == 7 * phrases


WRONG = dict(
    H=3, D=0, INNER=0, BETA=0, EPSILON=0, LAMBDA=-1, FILLERS=0, PHRASES=0, BEFORE=0, AFTER=0
)


@pytest.mark.parametrize("name", [*WRONG, "FILLER", "NOUNS"])
def test_a_wrong_constant_is_refused_before_training(name):
    changed = changed_copy(**{name: WRONG.get(name, "")})
    changed["train"] = lambda *_, **__: pytest.fail("it trains")
    with pytest.raises((ValueError, RuntimeError)):
        changed["main"]()


def shares_by_words(model, test, left_out=(), nouns_from=None) -> list[int]:
    """A row of the table, counted word by word; the decoder reads all rows, not Algorithm 1's."""
    source, _, target = test
    other = source if nouns_from is None else nouns_from
    counts = {kind: [] for kind in ("filler", "article", "noun", "article right", "noun right")}
    for words, other_words, wanted in zip(source, other, target[:, :-1].tolist(), strict=True):
        kinds = [kind_of(one.WORDS[word]) for word in words]
        (states, gates, _), (others, other_gates, _) = (
            model.eval().encode(each[None]) for each in (words, other_words)
        )
        for place, kind in enumerate(kinds):
            if kind == "noun":
                states[0, place], gates[0, place] = others[0, place], other_gates[0, place]
            if kind in ("filler", "article", "noun"):
                counts[kind].append(gates[0, place] == 0 or kind in left_out)
        keep = torch.tensor([[float(kind not in left_out) for kind in kinds]])
        written = [one.BOS]
        for word in wanted:
            written.append(model.decode(torch.tensor([written]), states, keep)[0, -1].argmax())
            counts[kind_of(one.WORDS[word]) + " right"].append(written[-1] == word)
    return [round(100 * sum(map(int, each)) / len(each)) for each in counts.values()]


def kind_of(word: str) -> str:
    if word in ("a", "the"):
        return "article"
    if word in one.FILLER.split():
        return "filler"
    return "noun" if word in one.NOUNS.split() else "end"


@torch.no_grad()
def test_main_prints_what_it_computed(capsys, monkeypatch):
    """The table and the last line of a short run, from the same models, word by word."""
    draw = one.sentences
    monkeypatch.setattr(one, "sentences", lambda count, generator: draw(min(count, 25), generator))
    for name, value in dict(BEFORE=70, AFTER=24, FILLERS=3, PHRASES=2, LAMBDA=4.0).items():
        monkeypatch.setattr(one, name, value)
    with torch.enable_grad():
        one.main()
        base, _ = one.train(70)
        control, _ = one.train(24, base)
        ruled, _ = one.train(24, base, leaves_out=True)
        gated, _ = one.train(24, base, has_gates=True)
        early, _ = one.train(3, base, has_gates=True)
    lines = capsys.readouterr().out.splitlines()
    test = one.sentences(500, torch.Generator().manual_seed(1000))
    wanted = [
        shares_by_words(control, test),
        shares_by_words(control, test, ["article"]),
        shares_by_words(ruled, test, ["article"]),
        shares_by_words(early, test),
        shares_by_words(gated, test),
    ]
    printed = [[int(n) for n in re.search(NUMBERS, line).groups()] for line in lines[1:6]]
    assert printed == wanted
    # each row and each column differs from the others: a wrong one would be seen
    assert len({tuple(row) for row in wanted}) == 5 and len(set(zip(*wanted, strict=True))) == 5
    swap = {one.A: one.THE, one.THE: one.A}
    other = torch.tensor([[swap.get(word, word) for word in row] for row in test[0].tolist()])
    changed = [100 - shares_by_words(m, test, nouns_from=other)[3] for m in (control, gated)]
    assert [int(n) for n in re.findall(r"(\d+) %", lines[-1])] == changed
    assert changed[0] != changed[1]


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = ended.stdout.splitlines()
    table = {line[:26].strip(): list(map(float, line[26:].split())) for line in lines[1:6]}
    filler, articles, nouns, right, nouns_right = table["gates, update 500"]
    assert filler > 50 and articles > 50 and nouns < 50 and nouns_right > 90
    assert table["no gates"] == pytest.approx([0, 0, 0, 100, 100], abs=5)
    assert right > table["articles left out"][3] + 25 and right > table["gates, update 62"][3] + 25
    assert table["left out in training, too"][3] > table["articles left out"][3] + 25
    without, with_gates = map(float, re.findall(r"(\d+) %", lines[-1]))
    assert with_gates > without + 50
