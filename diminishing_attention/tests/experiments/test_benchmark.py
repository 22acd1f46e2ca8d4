"""The benchmark runs, each side does the same work, and a clone of released code is one of them."""

import csv
import sys

import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark
from ...experiments.benchmark import Options, Shape

SETTINGS = "vocab_size, hidden_dim, emb_dim, use_gpu = 50_000, 256, 128, True\n"
# The interface of pointer_summarizer's model, and not more.
MODEL = """
import torch
from torch import nn
from data_util import config

assert not config.use_gpu

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.emb_dim)
        self.lstm = nn.LSTM(config.emb_dim, config.hidden_dim, batch_first=True, bidirectional=True)

    def forward(self, words, lengths):
        assert lengths.tolist() == [words.size(1)] * len(words)
        states, last = self.lstm(self.embedding(words))
        return states, states.flatten(0, 1), last

class Reduce(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Linear(2 * config.hidden_dim, config.hidden_dim)

    def forward(self, last):
        return tuple(self.both(part.transpose(0, 1).flatten(1)).unsqueeze(0) for part in last)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.emb_dim)
        self.output = nn.Linear(config.hidden_dim + config.emb_dim, config.vocab_size)

    def forward(self, word, state, states, features, mask, context, zeros, source, coverage, step):
        hidden, cell = state
        p = self.output(torch.cat([hidden[0], self.embedding(word)], -1)).softmax(-1)
        p = torch.cat([p, zeros], 1).scatter_add(1, source, mask / mask.sum(1, keepdim=True))
        return p, (hidden, cell), context, mask, None, coverage + mask

class Model:
    def __init__(self):
        self.encoder, self.decoder, self.reduce_state = Encoder(), Decoder(), Reduce()
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with the interface of the released code."""
    for name, text in (("data_util/config", SETTINGS), ("training_ptr_gen/model", MODEL)):
        path = tmp_path / f"clone/{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "clone"
    for name in [*sys.modules]:
        if name.startswith(("data_util", "training_ptr_gen")):
            del sys.modules[name]


def test_quick_has_a_row_of_each_side(tmp_path, clone):
    flags = ["--quick", "--released", str(clone), "--csv", str(tmp_path / "speed.csv")]
    benchmark.main(flags)
    with (tmp_path / "speed.csv").open() as file:
        rows = list(csv.DictReader(file))
    sides = {}
    for row in rows:
        if "packed" not in row["side"]:
            sides.setdefault((row["network"], row["work"]), []).append(row["side"])
    mechanisms = ["plain", "DimAttn", "DyDimAttn"]
    pointer = [*mechanisms, "coverage", "pointer_summarizer"]
    assert [*sides.values()] == [pointer, pointer, mechanisms, mechanisms]
    assert all(float(row["seconds_median"]) > 0 for row in rows)
    assert {row["x plain_median"] for row in rows if row["side"] == "plain"} == {"1"}


def test_each_side_does_the_same_work(clone):
    """Outputs of the length asked for; an update changes its model."""
    shape, autocast = Shape(2, 20, 5), torch.autocast("cpu", enabled=False)
    options = Options(quick=True, released=clone)
    for make_sides in (benchmark.pointer_sides, benchmark.bertsum_sides):
        sides = make_sides(shape, options, torch.device("cpu"), autocast)
        assert {side() for side in sides["search"].values()} == {shape.tokens}
        for side in sides["update"].values():
            arguments = side.args if hasattr(side, "args") else [side.__self__.parts]
            (model,) = [part for part in arguments if isinstance(part, torch.nn.Module)]
            before = [parameter.clone() for parameter in model.parameters()]
            side()
            assert not all(map(torch.equal, before, model.parameters()))
