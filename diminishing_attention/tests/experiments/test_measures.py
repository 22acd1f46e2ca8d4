"""MoverScore and BERTScore against slow restatements."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertModel

pytest.importorskip("shared")

from ...experiments import measures
from ...experiments.measures import Text, bertscore, moverscore
from ..conftest import write_bert

PREDICTIONS = ["the cat sat on the mat .", "a dog ran", "far away a cats ran", ""]
REFERENCES = ["a cat sat on a mat !", "a dog ran", "the dog sat .", "a dog"]
ONE_EACH = [[reference] for reference in REFERENCES]


@cache
def layers_of(text: str, folder: str) -> tuple[list[str], list[np.ndarray]]:
    """Names of the tokens, and the states of all seven layers."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertModel.from_pretrained(folder)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        layers = model.eval()(**inputs, output_hidden_states=True).hidden_states
    names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    return names, [layer[0].double().numpy() for layer in layers]


def slow_side(
    text: str, corpus: list[str], folder: str, n: int
) -> tuple[list[float], list[np.ndarray]]:
    """Masses and points of a text's n-grams, as moverscore.py of the authors has them."""
    names, layers = layers_of(text, folder)
    known = [set(layers_of(other, folder)[0]) for other in corpus]
    points, idf = [], []
    for place, name in enumerate(names):
        if name in ".!" or "##" in name:
            continue
        # the last five
        unit = [layer[place] / math.sqrt(sum(layer[place] ** 2)) for layer in layers[2:]]
        points.append(np.concatenate([np.min(unit, 0), np.mean(unit, 0), np.max(unit, 0)]))
        idf.append(math.log((len(corpus) + 1) / (sum(name in row for row in known) + 1)))
    masses, grams, n = [], [], min(n, len(points))
    for first in range(len(points) - n + 1):
        weights = np.array(idf[first : first + n])
        gram = weights / (weights.sum() + 1e-5) @ np.array(points[first : first + n])
        masses.append(weights.sum())
        grams.append(gram / (math.sqrt(sum(gram**2)) + 1e-6))
    return [mass / (sum(masses) or 1) for mass in masses], grams


@pytest.mark.parametrize("n", [1, 2])
def test_d13_moverscore_is_the_authors(encoder, n):
    """D13: 1 - the cheapest transport of squared distances, by a linear programme."""
    pytest.importorskip("ot")
    optimize = pytest.importorskip("scipy.optimize")
    found = moverscore(PREDICTIONS, ONE_EACH, encoder, n)
    for text, reference, value in zip(PREDICTIONS, REFERENCES, found, strict=True):
        mass, points = slow_side(text, PREDICTIONS, encoder, n)
        other_mass, others = slow_side(reference, REFERENCES, encoder, n)
        cost = [[sum((p - q) ** 2) for q in others] for p in points]
        if not any(mass):  # an empty output
            assert value == 0
            continue
        rows, columns = len(cost), len(cost[0])
        leaving = np.kron(np.eye(rows), np.ones(columns))
        arriving = np.kron(np.ones(rows), np.eye(columns))
        sums, masses = np.concatenate([leaving, arriving]), [*mass, *other_mass]
        cheapest = optimize.linprog(np.ravel(cost), A_eq=sums, b_eq=masses)
        assert value == pytest.approx(100 * (1 - cheapest.fun), abs=1e-3)
    assert moverscore(REFERENCES, ONE_EACH, encoder, n) == pytest.approx([100] * 4, abs=1e-6)


def test_of_several_references_the_best_counts(encoder):
    pytest.importorskip("ot")
    pytest.importorskip("bert_score")
    several = [["far away .", text] for text in REFERENCES]
    reverse = [pair[::-1] for pair in several]
    for order in (several, reverse):
        assert bertscore(REFERENCES, order, encoder) == pytest.approx([100] * 4, abs=1e-3)
    either = (moverscore(PREDICTIONS, order, encoder) for order in (several, reverse))
    assert next(either) == pytest.approx(next(either))


@pytest.mark.parametrize("texts", [["a dog ran"], ["a dog ran"] * 3])
def test_texts_that_idf_cannot_weigh_are_refused(encoder, texts):
    """One document, or a model that always says the same: no token is rarer than another."""
    references = [["the cat sat"], ["a mat"], ["far away"]][: len(texts)]
    with pytest.raises(ValueError, match="give predictions of several documents, not all alike"):
        moverscore(texts, references, encoder)
    if len(texts) == 1:
        with pytest.raises(ValueError, match="give references of several documents"):
            moverscore(["a dog", "the cat"], [["a mat"], ["a mat"]], encoder)


def test_an_encoder_that_the_package_cannot_use_is_one_line(tmp_path):
    """bert-score takes a folder with t5 in its name for a T5."""
    pytest.importorskip("bert_score")
    write_bert(tmp_path / "t5", ["dog"])
    with pytest.raises(ValueError, match="bert-score cannot use .*t5"):
        bertscore(["a dog"], [["a dog"]], str(tmp_path / "t5"))


def test_d13_marks_and_later_pieces_do_not_count():
    """[CLS] and [SEP] stay; what does not count is in the counts of the idf."""
    names = ["[CLS]", "storm", "##s", "hit", ".", "[SEP]"]
    text = Text([2, 9, 10, 11, 12, 3], names, torch.eye(6, dtype=torch.double))
    assert text.ids == [2, 9, 11, 3] and text.every == {2, 3, 9, 10, 11, 12}
    masses, points = text.ngrams({2: 0.0, 3: 0.0, 9: 1.0, 11: 3.0}, n=1)
    assert masses.tolist() == [0, 0.25, 0.75, 0]


@pytest.mark.parametrize("layer", [0, 2])
def test_bertscore_is_f1_of_a_layer(encoder, layer):
    """Greedy cosines both ways; [CLS] and [SEP] are matched, but do not count. 0 is layer 6."""
    pytest.importorskip("bert_score")
    *found, of_empty = bertscore(PREDICTIONS, ONE_EACH, encoder, layer)
    assert of_empty == bertscore([" "], [["a dog"]], encoder, layer)[0] == 0
    for text, reference, value in zip(PREDICTIONS, REFERENCES, found, strict=False):
        one, other = (layers_of(side, encoder)[1][layer or 6] for side in (text, reference))
        one, other = (side / np.linalg.norm(side, axis=-1, keepdims=True) for side in (one, other))
        cosines = one @ other.T
        precision, recall = cosines.max(1)[1:-1].mean(), cosines.max(0)[1:-1].mean()
        assert abs(precision - recall) > 1e-4 or text == reference
        assert value == pytest.approx(100 * 2 * precision * recall / (precision + recall), abs=1e-3)


@pytest.mark.parametrize("layer", [1, 2])
def test_the_command_adds_each_measure_to_its_rows(encoder, tmp_path, layer):
    """References as strings or as lists of sentences, as shared.score reads them."""
    pytest.importorskip("bert_score")
    pytest.importorskip("ot")
    rows = [
        {"id": str(i), "prediction": prediction, "references": [reference]}
        for i, (prediction, reference) in enumerate(zip(PREDICTIONS, REFERENCES, strict=True))
    ]
    rows[0]["prediction"] = PREDICTIONS[0].split(" ")
    rows[1]["references"] = [REFERENCES[1].split(" ")]
    (tmp_path / "dim.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--encoder", encoder, "--out", str(tmp_path / "out"), "--layer", str(layer)]
    measures.main([str(tmp_path / "dim.jsonl"), *flags])
    found = [json.loads(line) for line in (tmp_path / "out/dim.jsonl").read_text().splitlines()]
    texts = PREDICTIONS, ONE_EACH
    wanted = {
        "bertscore": bertscore(*texts, encoder, layer),
        "moverscore1": moverscore(*texts, encoder, 1),
        "moverscore2": moverscore(*texts, encoder, 2),
    }
    for name, values in wanted.items():
        assert [row[name] for row in found] == pytest.approx(values)
    assert wanted["moverscore1"] != pytest.approx(wanted["moverscore2"])
    assert wanted["bertscore"] != pytest.approx(bertscore(*texts, encoder, 3 - layer))
