"""Cross-entropy under a choice of sentences."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from shared.data import load

from ...experiments.cross_entropy import cross_entropies, systems
from ...loading import load_run
from ...selection import Selection
from ...train import train
from ..test_train import DATA, SMALL


def test_full_is_the_loss_of_training_and_a_selection_changes_it(tmp_path):
    train(replace(SMALL, steps=2), tmp_path / "base")
    run, examples = load_run(tmp_path / "base"), load(DATA, "validation", 3)
    selections, values = {"full": Selection(), "one": Selection("ideal", 1)}, {}
    for name, selection in selections.items():
        pairs = list(cross_entropies(run, examples, selection, batch_size=2))
        assert [document for document, _ in pairs] == [example.id for example in examples]
        values[name] = [value for _, value in pairs]
    for i, value in enumerate(values["full"]):  # each alone, without padding
        batch = run.collate([run.encode(examples)[i]])
        with torch.no_grad():
            assert run.model(**batch.source(), labels=batch.labels).loss.item() == pytest.approx(value, abs=1e-4)
    assert values["one"] != pytest.approx(values["full"], abs=1e-6)
    assert [name for name, _ in systems(run, 1)] == ["full", "ideal.r1", "random.r1", "mean_key.r1"]
    assert [name for name, _ in systems(run, 2)] == ["full", "approx.r2"]  # it has a map now
