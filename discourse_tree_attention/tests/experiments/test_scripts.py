"""Table 1, figures, controls, folds, standardised encoders; errors in one line."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file

from ... import predict, train
from ...config import TrainConfig
from ...experiments import controls, figures, folds, standardize, statistics
from ...experiments.controls import ControlConfig, previous, shuffled
from ...loading import load
from ...matrices import c_tree
from ...text import Document, random_encoder
from ...trees import read_dis
from ..test_text import EDUS, SENTENCES, TREE

# Table 1


def test_table_1_counts_units_and_what_the_oracle_takes(tmp_path, capsys):
    """Means over the split's documents, clauses of those with trees; 10 EDUs or 5 sentences."""
    words = [f"word{n} thing{n}" for n in range(12)]
    tree = "".join(f"( Nucleus (leaf {n}) (text _!{text}_!) ) " for n, text in enumerate(words, 1))
    story = {"document": words, "summary": " ".join(words), "tree": f"( Root (span 1 12) {tree})"}
    plain = {"document": ["one two", "three four", "five"], "summary": "three four five"}
    (tmp_path / "train.jsonl").write_text(json.dumps(plain))
    (tmp_path / "validation.jsonl").write_text(f"{json.dumps(story)}\n{json.dumps(plain)}\n")
    statistics.main([str(tmp_path), "--split", "validation"])
    assert capsys.readouterr().out.splitlines() == [
        "documents 2",
        "tokens 14.5",  # 24 and 5
        "sentences 7.5",  # 12 and 3
        "sentences (oracle) 3.5",  # 5 and 2
        "EDUs 12.0",
        "EDUs (oracle) 10.0",
    ]


# The picture

# ROUGE-1 of Tables 2 and 3, default sizes, and of Table 3, balanced ones
PAPER = {
    "edu": dict(dot=40.92, none=39.89, d_tree=40.43, c_tree_nuclearity=40.76),
    "sentence": dict(dot=41.71, c_tree_nuclearity=41.64),
    "sentence_balanced": {"dot-8-heads": 41.45, "c_tree": 41.68},
}


def test_the_claims_are_the_papers_beside_the_table_with_more_seeds(tmp_path):
    """Each diamond is a difference of Tables 2 and 3; a blue point is of the table of seeds."""
    for _, system, minus, end, claim in figures.CLAIMS:
        if minus == "previous":
            assert claim is None  # the paper has no such row
        else:
            assert claim == pytest.approx(PAPER[end][system] - PAPER[end][minus])
    header = "system,minus,metric,value,low,high,seeds_low,seeds_high"
    tables = {}
    for value, name in enumerate(("scitldr_edu", "scitldr_edu_test", "scitldr_edu_seeds_test"), 1):
        row = f"d_tree,none,rouge1,{value},{value - 0.5},{value + 0.25},,"
        (tmp_path / name).write_text(f"{header}\n{row}\n")
        tables[name] = figures.read_table(tmp_path / name)
    (axes,) = figures.figure_claims(tables).axes
    (place,) = (i for i, each in enumerate(figures.CLAIMS) if each[1:3] == ("d_tree", "none"))
    points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    assert {(1, place), (3, place + 0.2), (0.54, place - 0.2)} <= points
    assert not any(x == 2 for x, _ in points)
    segments = [bar.get_segments()[0][:, 0].tolist() for bar in axes.collections]
    assert [0.5, 1.25] in segments and [2.5, 3.25] in segments


def test_the_growth_is_that_of_each_side(tmp_path):
    """Each curve has its own side's seconds, in float32; updates and scoring are apart."""
    rows = ["units,work,side,seconds,precision", '200,update,"dot product, 1 head",9,bf16']
    for number, side in enumerate(figures.CURVES, 1):
        for work, factor in (("update", 10), ("scoring", 1)):
            for units in (50, 200):
                rows.append(f'{units},{work},"{side}",{number * factor * units},float32')
    rows.append("50,matrices,tree,1,float32")
    table = list(csv.DictReader(rows))
    for axes, factor in zip(figures.figure_growth(table).axes, (10, 1), strict=True):
        curves = [line.get_ydata().tolist() for line in axes.lines]
        assert curves == [[n * factor * 50, n * factor * 200] for n in range(1, 4)]
        assert [text.get_text().strip() for text in axes.texts] == list(figures.CURVES)
    (tmp_path / "times.csv").write_text("\n".join(rows))
    figures.main([str(tmp_path), "--times", str(tmp_path / "times.csv")])
    assert [path.name for path in tmp_path.glob("*.png")] == ["growth.png"]


# Controls


def test_d25_previous_attends_to_the_unit_before_and_reads_no_tree():
    """D25: a unit itself gets no weight, but the first."""
    matrix = previous(SimpleNamespace(units=[""] * 3), None)
    assert matrix.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_shuffled_trees_keep_the_shape_but_not_the_place():
    """Rows and columns permuted together; the same each time, another for each document."""
    config, plain = TrainConfig(attention="c_tree"), c_tree(read_dis(TREE))
    documents = [Document(name, EDUS, None, [], [], plain) for name in "aabcdef"]
    same, *found = [shuffled(document, config) for document in documents]
    for matrix in found:
        np.testing.assert_allclose(sorted(matrix.diagonal()), sorted(plain.diagonal()))
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    assert len({matrix.tobytes() for matrix in found}) > 2
    np.testing.assert_array_equal(found[0], same)


def test_unit_vectors_are_kept_and_computed_once(tmp_path):
    """Not of another encoder, or of other texts, or of these in another order."""
    texts, calls = [f"{word} rain" for word in "abcde"], []
    one, other = (random_encoder(texts, width=16, seed=seed).encode for seed in (0, 1))
    for encode, own in ((one, texts), (one, texts[::-1]), (other, texts)):
        np.testing.assert_allclose(controls.kept(encode, tmp_path, own), encode(own), atol=1e-6)
    assert len([*tmp_path.glob("*.npy")]) == len([*tmp_path.iterdir()]) == 3

    def counted(texts):
        calls.append(len(texts))
        return one(texts)

    for _ in range(2):
        controls.kept(counted, tmp_path, texts * 20)
    assert calls == [64, 100, 64]


def test_a_control_is_trained_resumed_and_read_by_its_own_command_alone(tmp_path, capsys):
    """Its matrices are not its trees'; killed and resumed it has equal bits."""
    data, run = "toy:signal=0,count=6", tmp_path / "shuffled"
    for flags in (
        "--control shuffled --steps 2 --out shuffled",
        "--control previous --steps 2 --out previous",
        "--control shuffled --steps 1 --out again",
    ):
        *flags, out = flags.split()
        flags += [str(tmp_path / out), "--attention", "d_tree", "--data", data, "--save-every", "1"]
        controls.main(["train", *flags])
    controls.main(["train", "--resume", "--out", str(tmp_path / "again"), "--steps", "2"])
    one, other, same = (
        load_file(tmp_path / name / "model.safetensors")
        for name in ("shuffled", "previous", "again")
    )
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(one[name], same[name]) for name in one)
    (document,) = controls.load_run(run).encode(load(data, "test", 1))
    plain = controls.load_run(run)._replace(config=ControlConfig(data=data, attention="d_tree"))
    (true,) = plain.encode(load(data, "test", 1))
    assert sorted(document.matrix.sum(0)) == sorted(true.matrix.sum(0))
    assert (document.matrix != true.matrix).any()
    capsys.readouterr()
    for command, arguments, said in (
        (controls, "go", "error: say train or predict"),
        (controls, "train --control previous --out x --attention dot", "--attention d_tree"),
        (train, f"--resume --out {run} --steps 4", "control"),
        (predict, f"{run} --data {data}", "control"),
        (standardize, f"{data} --encoder /no --out {run}", "exists"),
    ):
        with pytest.raises(SystemExit):
            command.main(arguments.split())
        assert said in capsys.readouterr().err


def test_folds_part_the_corpus(tmp_path):
    """No document is in two parts of a fold, and each is tested once."""
    folds.main(["toy:count=15", "--out", str(tmp_path / "folds")])
    examples = load("toy:count=15", "train") + load("toy:count=15", "validation")
    every = {example.id: example for example in examples}
    tested = []
    for fold in range(5):
        own = [load(tmp_path / f"folds/{fold}", split) for split in ("train", "validation", "test")]
        assert [len(part) for part in own] == [18, 6, 6]
        assert {example.id: example for example in sum(own, [])} == every
        assert own[1] == load(tmp_path / f"folds/{(fold + 1) % 5}", "test")
        tested += [example.id for example in own[2]]
    assert sorted(tested) == sorted(every)


def test_d24_standardized_vectors_have_mean_0_and_spread_1():
    """D24: first tokens and means over tokens alike."""
    for pooling in ("cls", "mean"):
        encoder = random_encoder([*SENTENCES, "it rained"], pooling, width=16)
        texts = [*EDUS, *SENTENCES, "it rained", "the mayor"]
        plain = encoder.encode(texts)
        standardize.standardize(encoder, plain)
        np.testing.assert_allclose(encoder.encode(texts).mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(encoder.encode(texts).std(0, ddof=1), 1, atol=1e-4)
