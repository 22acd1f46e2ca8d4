"""one.py is the package's mathematics, and shows the effect."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .. import approximator, attention, one, selection
from ..model import SentenceSparseBart, add_approximator, bart_config, freeze
from ..selection import Selection, SentenceAttention, Sentences

IDS = torch.arange(one.N).repeat_interleave(one.J)  # the sentence of each token
EXISTS = torch.ones(4, one.N, dtype=torch.bool)


@pytest.fixture
def pair():
    """one.py's BART and the package's with the same weights, and a map unlike the attention."""
    small = one.Bart()
    small.add_approximator()
    with torch.no_grad():
        for parameter in small.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    sizes = bart_config(one.V, one.D, one.INNER, one.H, 1, one.N * one.J, dropout=0.0)
    sizes.decoder_layers = 2
    large = SentenceSparseBart(sizes)
    add_approximator(large, "gru")
    weights = {}
    for name, weight in small.state_dict().items():
        weights[name if name.startswith("sentence_encoder") else f"model.{name}"] = weight
    missing, unexpected = large.load_state_dict(weights, strict=False)
    tied = {f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    assert set(missing) <= {*tied, "lm_head.weight", "final_logits_bias"} and not unexpected
    return small.double(), large.double().eval()


def both(pair, mode, r, phase):
    """Of a batch the logits, the record and the loss of a phase, by each of the two."""
    source, target_input, target = one.documents(4)
    small, large = pair
    logits, record = small(source, target_input, mode, r)
    cross_entropy = torch.nn.functional.cross_entropy(logits.mT, target)
    loss = one.objective(phase, cross_entropy, record)
    more = dict(sentence_ids=IDS.expand(4, -1), selection=Selection(mode, r), record=[])
    output = large(source, labels=target, **more)
    parts = selection.objective(phase, output.loss, more["record"], target >= 0, EXISTS)
    ours = logits, [*map(tuple, record)], loss
    return ours, (output.logits, [*map(tuple, more["record"])], parts["loss"])


def test_the_functions_of_the_idea_are_equal():
    """Eq. 2-4, 6, 7, 10, 11 and 15 on random numbers."""
    queries, keys, vectors = (torch.randn(4, one.H, length, one.K) for length in (5, 48, one.N))
    keep = torch.rand(4, 1, 5, 48) < 0.7
    words = one.word_attention(queries, keys, keep)
    torch.testing.assert_close(words, attention.word_attention(queries, keys, keep))
    sentences = Sentences(IDS.expand(4, -1), torch.eye(one.N)[IDS].expand(4, -1, -1), EXISTS)
    exact, approximate = one.saliency(words), one.approximate_attention(queries, vectors)
    torch.testing.assert_close(exact, selection.saliency(words, sentences.membership))
    expected = selection.approximate_attention(queries, vectors, EXISTS)
    torch.testing.assert_close(approximate, expected)
    for r in (1, 3, one.N):
        assert torch.equal(one.top_r(exact.mean(1), r), selection.top_r(exact.mean(1), EXISTS, r))
    torch.testing.assert_close(one.sharpen(exact), selection.sharpen(exact, EXISTS))
    layers = [(exact, approximate), (approximate, exact)]
    is_step = torch.ones(4, 5, dtype=torch.bool)
    expected = selection.kl_loss([SentenceAttention(*layer) for layer in layers], is_step, EXISTS)
    actual = one.kl_loss([one.SentenceAttention(*layer) for layer in layers])
    torch.testing.assert_close(actual, expected)
    encoder, states = approximator.SentenceEncoder("gru", one.D), torch.randn(4, 48, one.D)
    alone = one.SentenceEncoder()
    alone.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(alone(states), encoder(states, sentences))


@pytest.mark.parametrize(
    ("phase", "mode"),
    [("base", "full"), ("base", "ideal"), ("kl", "full"), ("integrated", "approx")],
)
def test_three_updates_are_equal(pair, phase, mode):
    """Loss, gradients, outputs and saliency; what a phase leaves alone has no gradient."""
    small, large = pair
    freeze(large, phase)
    theirs = {name.removeprefix("model."): weight for name, weight in large.named_parameters()}
    for name, weight in small.named_parameters():
        weight.requires_grad_(theirs[name].requires_grad)
    learning = [[weight for weight in m.parameters() if weight.requires_grad] for m in pair]
    optimizers = [torch.optim.Adam(weights, 1e-3) for weights in learning]
    for _ in range(4):
        outputs = both(pair, mode, 2, phase)
        torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5, check_dtype=False)
        for optimizer, (*_, loss) in zip(optimizers, outputs, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for name, weight in small.named_parameters():
            torch.testing.assert_close(weight.grad, theirs[name].grad, rtol=1e-4, atol=1e-5)
    assert max(weight.grad.abs().max() for weight in learning[0]) > 1e-3
    source, target_input, _ = one.documents(4)
    logits = [small(source, target_input, mode, 1)[0] for mode in ("full", "ideal", "random")]
    for first, second in zip(logits, logits[1:], strict=False):
        assert (first - second).abs().max() > 0.01


def test_the_random_choice_is_drawn_anew_for_each_step():
    attended = one.SentenceAttention(torch.rand(4, one.H, 30, one.N), None)
    scores = one.SentenceSparseAttention().scores("random", attended)
    assert scores.shape == (4, 1, 30, one.N)
    read = one.top_r(scores.mean(1), 2)  # (4, 30, N)
    assert all((steps[0] != steps).any() for steps in read)


def read_table(text):
    """The labels of the columns, and of each row its name and numbers; and the last line."""
    head, *rows, last = text.splitlines()
    shares = {row[:45].strip(): [float(number) for number in row[45:].split()] for row in rows}
    return re.findall(r"\d+ of \d+", head), shares, last


def test_main_prints_what_it_measured(monkeypatch, capsys):
    """Each share stands in its row and column; the last line has the differences of the last
    column; the test texts are none that were trained on.
    """
    measured = {"full": [91, 92], "ideal": [71, 83], "approx": [65, 78], "random": [13, 24]}
    drawn, tested = [], []

    def written_right(model, source, target, mode, r):
        tested.append(source)
        return measured[mode][one.READ.index(r)] + 0.2

    draw = one.documents
    monkeypatch.setattr(one, "documents", lambda count: drawn.append(draw(count)) or drawn[-1])
    monkeypatch.setattr(one, "written_right", written_right)
    monkeypatch.setattr(one, "UPDATES", 2)
    monkeypatch.setattr(one, "MAP_UPDATES", 2)
    one.main()
    columns, shares, last = read_table(capsys.readouterr().out)
    assert columns == ["1 of 8", "2 of 8"]
    assert [*shares.values()] == [*measured.values()]
    words = ["all sentences", "most attention", "learned map", "random"]
    assert all(word in name for word, name in zip(words, shares, strict=True))
    assert last == (
        "With 2 of 8 the map has -5 points against the ideal choice, +54 against chance."
    )
    trained_on = [set(map(tuple, source.tolist())) for source, *_ in drawn if len(source) == 32]
    held_out = set(map(tuple, tested[0].tolist()))
    assert len(trained_on) == 4 and held_out.isdisjoint(set.union(*trained_on))


def with_constants(**changed):
    """one.py's text with other constants at its top; each must be there, once."""
    text = Path(one.__file__).read_text(encoding="utf-8")
    for name, value in changed.items():
        text, count = re.subn(rf"^{name} = [^#\n]+", f"{name} = {value} ", text, flags=re.MULTILINE)
        assert count == 1
    return text


QUICK = dict(UPDATES=2, MAP_UPDATES=2)


@pytest.mark.parametrize(
    "changed",
    [
        dict(N=12), dict(J=5), dict(J=8), dict(MARKED=2), dict(D=48), dict(H=2), dict(INNER=96),
        dict(READ=(1, 3, 8)), dict(READ=(5,)), dict(seed=5), dict(UPDATES=1), dict(MAP_UPDATES=1),
    ],
    ids=str,
)  # fmt: skip
def test_a_constant_at_its_top_may_be_changed(changed, capsys):
    """All lengths and labels follow."""
    space = {"__name__": "paper"}
    exec(with_constants(**QUICK | changed), space)
    draw = space["documents"]
    space["documents"] = lambda count: draw(2)
    space["main"]()
    columns, shares, last = read_table(capsys.readouterr().out)
    n, read = changed.get("N", one.N), changed.get("READ", one.READ)
    assert columns == [f"{r} of {n}" for r in read]
    assert [len(row) for row in shares.values()] == [len(read)] * 4
    assert last.startswith(f"With {read[-1]} of {n} the map has ")
    source, target_input, target = draw(3)
    letters = changed.get("J", one.J) - 1
    assert source.shape == (3, n * (letters + 1))
    assert target.shape == target_input.shape == (3, changed.get("MARKED", one.MARKED) * letters)
    assert len(set(shares["all sentences"])) == 1  # r has no part in it
    if read[-1] == n:  # so many are all
        ideal, learned = (shares[name][-1] for name in [*shares][1:3])
        assert ideal == learned == shares["all sentences"][-1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(N=2), "MARKED is 3"), (dict(J=1), "J is 1"), (dict(MARKED=0), "MARKED is 0"),
        (dict(MARKED=9), "MARKED is 9"), (dict(D=50), "D is 50"), (dict(INNER=0), "at least 1"),
        (dict(READ=(1, 9)), "READ is"), (dict(READ=(0,)), "READ is"), (dict(READ=()), "READ is"),
        (dict(UPDATES=0), "at least 1"), (dict(MAP_UPDATES=-1), "at least 1"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_constant_is_refused_before_training(changed, message, capsys):
    space = {"__name__": "paper"}
    exec(with_constants(**QUICK | changed), space)
    space["train"] = None
    with pytest.raises(AssertionError, match=message):
        space["main"]()
    assert capsys.readouterr().out == ""


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    _, table, _ = read_table(output.stdout)
    (full, _), (_, ideal), (_, learned), (_, chance) = table.values()
    assert full > 90 and learned > chance + 35 and abs(learned - ideal) < 8
