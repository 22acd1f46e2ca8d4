"""pack.py: the same products, only where they are faster, and only where nothing needs a weight."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from shared import pack as packing
from shared.pack import PackedLinear, gain, pack

torch.set_num_threads(1)


class Tied(nn.Module):
    """Layers of its own, and an output product with the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8, bias=False))
        self.output = nn.Linear(8, 9, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.inner(self.embedding(tokens)))


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(packing, "gain", lambda linear: 2.0)
    torch.manual_seed(0)
    return Tied().eval()


def test_packed_layers_give_the_same_and_tied_ones_stay(model):
    """Fails where a new torch changes the operations; `pack` then leaves models as they are."""
    tokens = torch.tensor([[1, 2, 3]])
    assert gain(model.inner[0]) > 0
    with torch.inference_mode():
        before = model(tokens)
        assert pack(model)
        torch.testing.assert_close(model(tokens), before, atol=1e-6, rtol=1e-5)
    kinds = {name: type(module) for name, module in model.named_modules()}
    assert kinds["inner.0"] is kinds["inner.2"] is PackedLinear
    assert kinds["output"] is nn.Linear


def test_a_model_that_would_not_gain_stays_as_it_is(model, monkeypatch):
    before = {name: type(module) for name, module in model.named_modules()}
    assert not pack(model.double())
    assert not pack(nn.ReLU())
    model.float()
    monkeypatch.setattr(packing, "gain", lambda linear: 1.49)
    assert not pack(model)
    assert {name: type(module) for name, module in model.named_modules()} == before
