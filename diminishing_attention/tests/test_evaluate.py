"""Evaluation: systems over seeds, intervals, decoding, the tables, the ablation, and bad input."""

import csv
import json
import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared import rouge
from shared.data import Example, load

from .. import evaluate as evaluation
from ..bertsum import Item
from ..evaluate import STUDENT, common_name, decode, differences, extract, group, main, parse, score, summarise
from ..measures import ngrams, split_words
from ..search import beam_search
from ..train import TrainConfig, load_run, train

DATA = "toy:count=12,seed=5"
SMALL = TrainConfig(
    data=DATA, vocabulary=120, embedding=8, hidden=8, batch_size=6, steps=4, max_target=30, max_source=60, beam=2,
    max_length=10,
)  # fmt: skip
FLAGS = Namespace(lead=3, bertscore=None, moverscore=None, device="cpu")


def example(document: list[str], *references: list[str]) -> Example:
    return Example("x", document, references[0], list(references))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Two seeds of a base, each with DimAttn switched on, and an extractive run."""
    top = tmp_path_factory.mktemp("runs")
    folders = {}
    for seed in (0, 1):
        folders[f"pg-{seed}"], folders[f"dim-{seed}"] = top / f"pg-{seed}", top / f"dim-{seed}"
        train(replace(SMALL, seed=seed), top / f"pg-{seed}")
        config = replace(SMALL, seed=seed, init=str(top / f"pg-{seed}"), diminishing="dim", steps=1)
        train(config, top / f"dim-{seed}")
    bert = dict(model="bertsum-ext", width=16, layers=1, heads=2, feed_forward=16, decoder_layers=1, positions=200)
    folders["ext"] = top / "ext"
    train(replace(SMALL, max_source=200, steps=2, **bert), top / "ext")
    return folders


# Systems and intervals


def test_runs_that_differ_in_the_seed_alone_are_one_system(runs):
    order = ["dim-0", "pg-1", "pg-0", "dim-1"]
    systems = group([runs[name] for name in order])
    assert [(system.name, [folder.name for folder in system.folders]) for system in systems] == [
        ("dim", ["dim-0", "dim-1"]),
        ("pg", ["pg-1", "pg-0"]),
    ]
    assert [run.config.seed for run in systems[1].runs] == [1, 0]
    assert [system.name for system in group([runs["pg-0"]])] == ["pg-0"]
    names = [Path("runs/pg-seed1"), Path("runs/pg_2"), Path("runs/7")]
    assert [common_name([name, name]) for name in names] == ["pg", "pg", "7"]


def test_the_same_run_twice_and_names_alike_are_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="have the same configuration and seed: give one of them"):
        group([runs["pg-0"], runs["pg-0"]])
    (tmp_path / "pg-0").symlink_to(runs["dim-0"])
    with pytest.raises(ValueError, match="two systems are called pg-0 or alike: rename their run folders"):
        group([runs["pg-0"], tmp_path / "pg-0"])


def test_the_base_of_a_run_is_part_of_what_it_is(runs, tmp_path):
    """The same second phase on another base is another system."""
    config = json.loads((runs["dim-1"] / "config.json").read_text())
    other = tmp_path / "dim-2"
    other.mkdir()
    config["base"]["train"]["steps"] = 99
    (other / "config.json").write_text(json.dumps(config))
    assert evaluation.identity(other) != evaluation.identity(runs["dim-0"])
    assert evaluation.identity(runs["dim-1"]) == evaluation.identity(runs["dim-0"])


def test_intervals_over_documents_and_over_seeds():
    """Bootstrap over documents of the mean over seeds; Student's t over the seeds' means, here by hand for three."""
    rng = np.random.default_rng(0)
    seeds = [rng.normal(50 + shift, 5, size=40) for shift in (0, 1, 3)]
    found = summarise(seeds, baseline=seeds[0])
    means = [values.mean() for values in seeds]
    mean = sum(means) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in means) / 2)
    half = 4.303 * deviation / math.sqrt(3)
    assert found["mean"] == pytest.approx(mean) and found["seeds"] == pytest.approx(means)
    assert (found["seed_low"], found["seed_high"]) == pytest.approx((mean - half, mean + half))
    pooled = np.mean(seeds, axis=0)
    assert (found["mean"], found["low"], found["high"]) == rouge.bootstrap_interval(pooled)
    assert found["p"] == rouge.paired_test(pooled, seeds[0])
    one = summarise(seeds[:1])
    assert one["seed_low"] is None and one["p"] is None and one["low"] < one["mean"] < one["high"]


def test_differences_are_paired_by_seed():
    """Seeds that are good for one system are good for the other: their difference is steady."""

    def system(values: list[float], seeds: list[int]) -> dict:
        metrics = ("rouge1", "rouge2", "rougeLsum", "repetition3")
        return {"seeds": seeds, "scores": {metric: {"seeds": values} for metric in metrics}}

    systems = {"base": system([10.0, 20.0, 60.0], [0, 1, 2]), "dim": system([11.0, 21.0, 62.0], [0, 1, 2])}
    half = 4.303 * (1 / 3) ** 0.5 / 3**0.5  # gains 1, 1, 2
    line = differences({"systems": systems}).splitlines()[-1]
    assert line == f"| dim | {' | '.join([f'1.33 [{4 / 3 - half:.2f}, {4 / 3 + half:.2f}]'] * 4)} |"
    assert differences({"systems": systems | {"dim": system([11.0, 21.0, 62.0], [0, 1, 3])}}) == ""


def test_quantiles_of_student_are_those_of_the_distribution():
    stats = pytest.importorskip("scipy.stats")
    assert list(STUDENT) == pytest.approx([stats.t.ppf(0.975, n) for n in range(1, 10)], abs=5e-4)


# Scores


def test_scores_of_one_text_by_hand():
    document = ["a storm hit the town .", "schools closed .", "rain fell .", "the sun came back ."]
    text = "a storm hit . a storm hit ."
    found = score([text], [example(document, ["a storm hit ."])], FLAGS)
    assert found["rouge1"][0] == pytest.approx(100 * 2 * (3 / 6) / (3 / 6 + 1))  # precision 3 of 6, recall 1
    assert found["repetition1"][0] == pytest.approx(50) and found["repetition3"][0] == pytest.approx(25)
    assert found["novel1"][0] == 0 and found["novel2"][0] == pytest.approx(20)  # "hit a"
    assert found["words"][0] == 6
    # Against the lead of 3 sentences, 9 words: "a storm hit" is shared.
    assert found["lead_rouge1"][0] == pytest.approx(100 * 2 * (3 / 6) * (3 / 9) / (3 / 6 + 3 / 9))
    reference = score(["a storm hit ."], [example(document, ["a storm hit ."])], FLAGS, is_reference=True)
    assert "rouge1" not in reference and reference["repetition1"][0] == 0


def test_of_several_references_the_best_counts():
    found = score(["rain fell"], [example(["rain fell ."], ["snow came"], ["rain fell"])], FLAGS)
    assert found["rouge1"][0] == 100


def test_an_empty_summary_scores_zero():
    found = score([""], [example(["rain fell ."], ["rain fell"])], FLAGS)
    assert all(values[0] == 0 for values in found.values())


# Decoding


def test_decoding_keeps_the_order_and_each_document_is_decoded_as_if_alone(runs):
    run, examples = load_run(runs["dim-0"]), load(DATA, "test")
    together = decode(run, examples, batch_size=5)
    assert together == [decode(run, [e], batch_size=1)[0] for e in examples]
    items = run.prepare(examples[:1])
    [tokens] = beam_search(run.module, run.collate(items), beam=2, average=True, max_length=10, never=run.never).tokens
    assert together[0] == run.decode(items, [tokens])[0]


def test_flags_of_decoding_reach_the_search(runs, monkeypatch):
    seen = []
    monkeypatch.setattr(evaluation, "beam_search", lambda *a, **k: seen.append(k) or beam_search(*a, **k))
    decode(load_run(runs["pg-0"]), load(DATA, "test", 1), 1, beam=3, length_penalty=1.5, trigram_blocking=True)
    expected = {"beam": 3, "length_penalty": 1.5, "trigram_blocking": True, "average": True, "never": (0, 1)}
    assert seen == [expected | {"min_length": 0, "max_length": 10}]


def test_a_length_penalty_takes_the_place_of_the_average(runs):
    """As flag it switches the run's average off, unless that is asked for too."""
    assert parse(["run", "--length-penalty", "1.5"]).search == {"length_penalty": 1.5, "average": False}
    both = parse(["run", "--length-penalty", "1.5", "--average", "true"]).search
    assert both == {"length_penalty": 1.5, "average": True}
    assert parse(["run"]).search == {} and parse(["run", "--length-penalty", "0"]).search == {"length_penalty": 0.0}


def test_extractive_summaries_are_the_most_probable_sentences_in_their_order():
    """With blocking a sentence that shares a trigram with a better one is passed over."""

    class Model:
        def probabilities(self, batch):
            return torch.tensor([[0.1, 0.9, 0.3, 0.8], [0.2, 0.9, 0.0, 0.0]])

    batch = Namespace(keep_sentences=torch.tensor([[True] * 4, [True, True, False, False]]))
    document = ["One .", "A b c d .", "Three .", "x A b c ."]
    examples = [example(document, ["r"]), example(["One .", "Two ."], ["r"])]
    assert extract(Model(), batch, examples, 2, False) == ["A b c d .\nx A b c .", "One .\nTwo ."]
    assert extract(Model(), batch, examples, 2, True)[0] == "A b c d .\nThree ."
    assert extract(Model(), batch, examples, 1, False) == ["A b c d .", "Two ."]


# The whole


def test_d17_tables_over_seeds_with_ablation(runs, tmp_path, capsys):
    folders = [str(runs[name]) for name in ("pg-0", "pg-1", "dim-0", "dim-1")]
    paths = [
        "--json",
        tmp_path / "out" / "m.json",
        "--csv",
        tmp_path / "out" / "m.csv",
        "--predictions",
        tmp_path / "p",
    ]
    main([*folders, "--ablation", *map(str, paths)])
    printed = capsys.readouterr().out
    metrics = json.loads((tmp_path / "out" / "m.json").read_text())
    assert list(metrics["systems"]) == ["pg", "dim"] and metrics["examples"] == 12
    for part in ("Table 1", "Table 3", "Table 4", "Figure 2", "Figure 3", "lead-3", "over seeds", "p against pg: dim"):
        assert part in printed
    assert metrics["signature"] in printed and "Table 2" not in printed
    # Every number again from the predictions.
    examples = load(DATA, "test")
    for name in ("pg", "dim"):
        texts = []
        for seed in (0, 1):
            rows = [json.loads(line) for line in (tmp_path / "p" / f"{name}-{seed}.jsonl").read_text().splitlines()]
            assert [(row["id"], row["reference"]) for row in rows] == [(e.id, e.target) for e in examples]
            texts.append([row["prediction"] for row in rows])
        scores = metrics["systems"][name]["scores"]
        words = [[split_words(text) for text in of_seed] for of_seed in texts]
        lengths = [float(np.mean([len(w) for w in of_seed])) for of_seed in words]
        assert scores["words"]["seeds"] == pytest.approx(lengths)
        repeated = [100 * (1 - len(set(ngrams(w, 2))) / len(ngrams(w, 2))) if len(w) > 1 else 0 for w in words[0]]
        assert scores["repetition2"]["seeds"][0] == pytest.approx(np.mean(repeated))
    system = metrics["systems"]["dim"]
    assert (system["diminishing"], system["seeds"], system["model"]) == ("dim", [0, 1], "pointer")
    assert system["parameters_listed"] - system["parameters"] == 120 * 8  # the embedding, counted twice in Table 1
    rows = metrics["ablation"]["dim"]
    assert list(rows) == ["only", "+ length norm.", "+ trigram blocking"]
    assert [(row["length_penalty"], row.get("average"), row["trigram_blocking"]) for row in rows.values()] == [
        (0.0, True, False), (1.5, False, False), (1.5, False, True),
    ]  # fmt: skip
    assert rows["+ trigram blocking"]["scores"]["repetition3"]["mean"] == 0
    table = list(csv.DictReader((tmp_path / "out" / "m.csv").open()))
    [row] = [row for row in table if (row["system"], row["metric"]) == ("dim", "rouge1")]
    assert float(row["mean"]) == pytest.approx(system["scores"]["rouge1"]["mean"], rel=1e-3) and row["seeds"] == "2"
    assert {row["system"] for row in table} >= {"lead-3", "reference", "pg", "dim only"}


def test_an_extractive_run_and_the_lead(runs, capsys, tmp_path):
    main(
        [
            str(runs["ext"]),
            "--sentences",
            "2",
            "--lead",
            "2",
            "--limit",
            "4",
            "--predictions",
            str(tmp_path / "p.jsonl"),
        ]
    )
    assert "lead-2" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    for row, e in zip(rows, load(DATA, "test", 4), strict=True):
        lines = row["prediction"].split("\n")
        assert len(lines) == 2 and [line for line in e.document if line in lines] == lines


def test_table_2_asks_both_packages_with_every_text(runs, monkeypatch, capsys):
    """The texts, references and folders reach them; their values reach the table."""
    calls = []
    monkeypatch.setattr(
        evaluation.measures, "bertscore", lambda *a: calls.append(("bert", a)) or [80.0 + i for i in range(len(a[0]))]
    )
    monkeypatch.setattr(
        evaluation.measures, "moverscore", lambda *a: calls.append(("mover", a)) or [10.0 * a[3]] * len(a[0])
    )
    main([str(runs["pg-0"]), "--limit", "3", "--bertscore", "B", "--bertscore-layer", "2", "--moverscore", "M"])
    targets = [e.target for e in load(DATA, "test", 3)]
    of_run = calls[3:]  # the first three are the lead's
    assert [name for name, _ in of_run] == ["bert", "mover", "mover"]
    assert all(list(arguments[1]) == targets for _, arguments in of_run)
    assert of_run[0][1][2:] == ("B", 2, "cpu") and of_run[2][1][2:] == ("M", 2, "cpu")
    printed = capsys.readouterr().out
    assert "Table 2" in printed and "81.00" in printed and "20.00" in printed


# Bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lead", "0"], "--lead, --sentences and --batch-size must be at least 1"),
        (["--beam", "200"], "beam is 200; it must be from 1 to the vocabulary's 120 tokens"),
        (["--length-penalty", "-1"], "length_penalty is -1.0; it must be at least 0"),
        (["--split", "dev2"], "toy split 'dev2' does not exist|dev2"),
        (["--data", "nowhere"], "no file or folder 'nowhere'"),
    ],
)
def test_bad_flags_end_with_one_line(runs, flags, message):
    with pytest.raises(SystemExit, match=f"error: .*({message})"):
        main([str(runs["pg-0"]), *flags])


def test_bad_runs_end_with_one_line(tmp_path, runs, capsys):
    with pytest.raises(SystemExit, match="error: .*not a run folder of diminishing_attention.train"):
        main([str(tmp_path)])
    with pytest.raises(SystemExit):
        parse([str(runs["pg-0"]), "--trigram-blocking", "maybe"])
    assert "'maybe' is not true or false" in capsys.readouterr().err


def test_item_of_a_document_longer_than_the_run_reads_is_cut(runs):
    run, examples = load_run(runs["ext"]), load(DATA, "test", 2)
    items: list[Item] = run.prepare(examples)
    assert all(len(item.source) <= run.config.max_source for item in items)
