"""Evaluation: systems over seeds, intervals, decoding, the tables, the ablation, and bad input."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared import rouge
from shared.data import Example, load

from .. import evaluate as evaluation
from .. import predict as prediction
from ..evaluate import common_name, group, lead_of, main, score, summarise
from ..predict import decode, decode_all, extract
from ..search import beam_search
from ..search_released import released_search
from ..train import load_run
from .conftest import SMALL

DATA = SMALL.data


def example(document: list[str], *references: list[str]) -> Example:
    return Example("x", document, references[0], list(references))


@pytest.fixture
def runs(trained) -> dict[str, Path]:
    """Two seeds of a base, each with DimAttn switched on."""
    folders = {}
    for seed in (0, 1):
        base = folders[f"pg-{seed}"] = trained(replace(SMALL, seed=seed), f"pg-{seed}")
        config = replace(SMALL, seed=seed, init=str(base), diminishing="dim", steps=1)
        folders[f"dim-{seed}"] = trained(config, f"dim-{seed}")
    return folders


def test_runs_that_differ_in_the_seed_alone_are_one_system(runs):
    """Seeds and folders aside, a run is its configuration and that of the runs that it goes on from."""
    loaded = {name: load_run(runs[name]) for name in ("dim-0", "pg-1", "pg-0", "dim-1")}
    systems = {name: list(members) for name, members in group(loaded).items()}
    assert systems == {"dim": ["dim-0", "dim-1"], "pg": ["pg-1", "pg-0"]}
    assert [common_name([name, name]) for name in ("pg-seed1", "pg_2", "7")] == ["pg", "pg", "7"]
    one, other, base = loaded["dim-1"], loaded["dim-0"], loaded["pg-0"]
    changed = one._replace(base=[one.base[0] | {"steps": 99}])
    assert list(group({"dim-1": changed, "dim-0": other})) == ["dim-1", "dim-0"]
    with pytest.raises(ValueError, match="have the same configuration and seed: give one of them"):
        group({"pg-0": base, "again": base})
    with pytest.raises(ValueError, match="two of pg are called alike: rename their run folders"):
        group({"pg-0": base, "pg-1": loaded["pg-1"], "pg": other})


def test_intervals_and_p_are_over_documents_of_the_means_over_seeds():
    """One yardstick: bootstrap over documents, approximate randomisation; the seeds stand beside them, paired."""
    rng = np.random.default_rng(0)
    seeds = [{"rouge1": rng.normal(50 + shift, 5, size=40)} for shift in (0, 1, 3)]
    others = [{"rouge1": rng.normal(48 + shift, 5, size=40)} for shift in (0, 1, 3)]
    pooled, first = (np.mean([scores["rouge1"] for scores in of], axis=0) for of in (seeds, others))
    means, their_means = ([scores["rouge1"].mean() for scores in of] for of in (seeds, others))
    assert summarise(seeds)["rouge1"] == rouge.interval(pooled) | {"seeds": means}
    gain = summarise(seeds, others)["rouge1"]
    assert {key: gain[key] for key in ("difference", "low", "high", "p")} == rouge.difference(pooled, first)
    assert gain["seeds"] == pytest.approx([one - other for one, other in zip(means, their_means, strict=True)])
    assert summarise(seeds, others[:2])["rouge1"]["seeds"] is None  # not the same number of seeds


def test_scores_of_one_text_by_hand():
    document = ["a storm hit the town .", "schools closed .", "rain fell .", "the sun came back ."]
    text = "a storm hit . a storm hit ."
    found = score([text], [example(document, ["a storm hit ."])])
    assert found["rouge1"][0] == pytest.approx(100 * 2 * (3 / 6) / (3 / 6 + 1))  # precision 3 of 6, recall 1
    assert found["repetition1"][0] == pytest.approx(50) and found["repetition3"][0] == pytest.approx(25)
    assert found["novel1"][0] == 0 and found["novel2"][0] == pytest.approx(20)  # "hit a"
    assert found["words"][0] == 6
    # Against the lead of 3 sentences, 9 words: "a storm hit" is shared.
    assert found["lead_rouge1"][0] == pytest.approx(100 * 2 * (3 / 6) * (3 / 9) / (3 / 6 + 3 / 9))
    reference = score(["a storm hit ."], [example(document, ["a storm hit ."])], is_reference=True)
    assert "rouge1" not in reference and reference["repetition1"][0] == 0


def test_decoding_keeps_the_order_and_each_document_is_decoded_as_if_alone(runs, monkeypatch):
    run, examples = load_run(runs["dim-0"]), load(DATA, "test")
    together = decode_all(run, examples, batch_size=5)
    assert together == [decode_all(run, [e], batch_size=1)[0] for e in examples]
    monkeypatch.setattr(prediction, "decode", lambda run, examples: [(2, "c"), (0, "a"), (1, "b")])
    assert decode_all(run, examples[:3]) == ["a", "b", "c"]


def test_flags_of_decoding_reach_the_search(runs, monkeypatch):
    seen = []
    monkeypatch.setattr(prediction, "beam_search", lambda *a, **k: seen.append(k) or beam_search(*a, **k))
    run, examples = load_run(runs["pg-0"]), load(DATA, "test", 1)
    list(decode(run, examples, 1, beam=3, length_penalty=1.5, trigram_blocking=True))
    expected = {"beam": 3, "length_penalty": 1.5, "trigram_blocking": True, "average": True, "never": (0, 1)}
    assert seen == [expected | {"min_length": 0, "max_length": 10}]


def test_d16_released_ends_as_the_code_that_the_model_comes_from(trained, monkeypatch):
    seen = []
    monkeypatch.setattr(prediction, "released_search", lambda *a, **k: seen.append(k) or released_search(*a, **k))
    bert = dict(model="bertsum-abs", width=16, layers=1, heads=2, feed_forward=16, decoder_layers=1)
    for config in (SMALL, replace(SMALL, **bert)):
        run = load_run(trained(config, config.model))
        list(decode(run, load(DATA, "test", 1), 1, released=True, max_length=5))
    assert [options["presumm"] for options in seen] == [False, True] and seen[1]["max_length"] == 5


def test_a_length_penalty_takes_the_place_of_the_average(runs, monkeypatch):
    """As flag it switches the run's average off, unless that is asked for too."""
    seen = []
    monkeypatch.setattr(evaluation, "evaluate", lambda *a, **options: seen.append(options) or {})
    monkeypatch.setattr(evaluation, "tables", str)
    for flags in (["1.5"], ["1.5", "--average", "True"], ["0"]):
        main([str(runs["pg-0"]), "--length-penalty", *flags])
    assert [(options["length_penalty"], options.get("average")) for options in seen] == [
        (1.5, False), (1.5, True), (0, None),
    ]  # fmt: skip


def test_extractive_summaries_are_the_most_probable_sentences_in_their_order():
    """With blocking a sentence that shares a trigram with a better one is passed over."""

    class Model:
        def probabilities(self, batch):
            return torch.tensor([[0.1, 0.9, 0.3, 0.8], [0.2, 0.9, 0.0, 0.0]])

    batch = SimpleNamespace(keep_sentences=torch.tensor([[True] * 4, [True, True, False, False]]))
    document = ["One .", "A b c d .", "Three .", "x A b c ."]
    examples = [example(document, ["r"]), example(["One .", "Two ."], ["r"])]
    assert extract(Model(), batch, examples, 2, False) == ["A b c d .\nx A b c .", "One .\nTwo ."]
    assert extract(Model(), batch, examples, 2, True)[0] == "A b c d .\nThree ."
    assert extract(Model(), batch, examples, 1, False) == ["A b c d .", "Two ."]


def test_d17_tables_over_seeds_with_ablation(runs, tmp_path, capsys):
    folders = [str(runs[name]) for name in ("pg-0", "pg-1", "dim-0", "dim-1")]
    out = tmp_path / "out"
    main([*folders, "--ablation", "--json", f"{out}/m.json", "--csv", f"{out}/m.csv", "--predictions", f"{out}/p"])
    printed = capsys.readouterr().out
    metrics = json.loads((out / "m.json").read_text())
    assert list(metrics["systems"]) == ["pg", "dim"] and metrics["examples"] == 24 and metrics["data"] == DATA
    parts = ("Table 1", "Table 3", "Table 4", "Figure 2", "Figure 3", "lead-3", "Minus pg", "seed by seed")
    assert all(part in printed for part in parts) and metrics["signature"] in printed and "Table 2" not in printed
    # Numbers again from the predictions.
    examples, values = load(DATA, "test"), []
    for seed in (0, 1):
        rows = [json.loads(line) for line in (out / "p" / f"dim-{seed}.jsonl").read_text().splitlines()]
        texts = {row["id"]: row["prediction"] for row in rows}
        assert all(row["reference"] == e.target for row in rows for e in examples if e.id == row["id"])
        values.append(score([texts[e.id] for e in examples], examples))
    assert metrics["systems"]["dim"]["scores"] == summarise(values)
    system, base = metrics["systems"]["dim"], metrics["systems"]["pg"]
    assert (system["diminishing"], system["seeds"], system["model"]) == ("dim", [0, 1], "pointer")
    assert system["parameters_listed"] - system["parameters"] == 120 * 8  # the embedding, counted twice in Table 1
    gain = system["difference"]["words"]
    assert gain["difference"] == pytest.approx(system["scores"]["words"]["mean"] - base["scores"]["words"]["mean"])
    assert base["difference"] is None and 0 < gain["p"] <= 1
    rows = metrics["ablation"]["dim"]
    assert list(rows) == ["only", "+ length norm.", "+ trigram blocking"]
    assert [(row["length_penalty"], row["average"], row["trigram_blocking"]) for row in rows.values()] == [
        (0.0, True, False), (1.5, False, False), (1.5, False, True),
    ]  # fmt: skip
    repeated = [row["scores"]["repetition3"]["mean"] for row in rows.values()]
    assert repeated[2] < repeated[1] / 2  # not 0: blocked are trigrams of tokens, measured those without punctuation
    table = list(csv.DictReader((out / "m.csv").open()))
    of_dim = [row for row in table if row["system"] == "dim"]
    assert [row["seed"] for row in of_dim] == ["0", "1"]
    assert float(of_dim[1]["rouge1"]) == pytest.approx(system["scores"]["rouge1"]["seeds"][1], rel=1e-3)
    assert float(of_dim[0]["words"]) == pytest.approx(system["scores"]["words"]["seeds"][0], rel=1e-3)
    assert {row["system"] for row in table} >= {"lead", "reference", "pg", "dim only"}


def test_table_2_asks_both_packages_with_every_text(runs, monkeypatch, capsys):
    """The texts, references and folders reach them; their values reach the table."""
    calls = []
    scores = {"bertscore": lambda *a: [80.0, 81.0, 82.0], "moverscore": lambda *a: [10.0 * a[3]] * 3}
    for name, give in scores.items():
        record = lambda *a, name=name, give=give: calls.append((name, a)) or give(*a)  # noqa: E731
        monkeypatch.setattr(evaluation.measures, name, record)
    main([str(runs["pg-0"]), "--limit", "3", "--bertscore", "B", "--bertscore-layer", "2", "--moverscore", "M"])
    targets = [e.target for e in load(DATA, "test", 3)]
    of_run = calls[3:]  # the first three are the lead's
    assert [name for name, _ in of_run] == ["bertscore", "moverscore", "moverscore"]
    assert all(list(arguments[1]) == targets for _, arguments in of_run)
    assert of_run[0][1][2:4] == ("B", 2) and of_run[2][1][2:4] == ("M", 2)
    printed = capsys.readouterr().out
    assert "Table 2" in printed and "81.00" in printed and "20.00" in printed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lead", "0"], "--lead, --sentences and --batch-size must be at least 1"),
        (["--beam", "200"], "beam is 200; it must be from 1 to the vocabulary's 120 tokens"),
        (["--length-penalty", "-1"], "length_penalty is -1.0; it must be at least 0"),
        (["--device", "foo"], "--device foo cannot be used here"),
        (["{tmp}"], "is not a run folder"),
    ],
)
def test_bad_flags_end_with_one_line(runs, tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit) as stop:
        main([str(runs["pg-0"]), *(flag.format(tmp=tmp_path) for flag in flags)])
    error = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and error.startswith("error: ") and message in error


def test_outputs_and_references_are_checked_before_decoding(runs, tmp_path, capsys, monkeypatch):
    """An output that cannot be written, a reference that ROUGE cannot read: nothing is decoded for them."""
    monkeypatch.setattr(prediction, "beam_search", lambda *a, **k: pytest.fail("decoded"))
    for flag in ("--json", "--csv"):
        with pytest.raises(SystemExit) as stop:
            main([str(runs["pg-0"]), "--limit", "2", flag, str(tmp_path)])
        assert stop.value.code == 1
    (tmp_path / "data.jsonl").write_text(json.dumps({"source": "a b", "target": "...", "id": "empty"}))
    with pytest.raises(SystemExit):
        main([str(runs["pg-0"]), "--data", str(tmp_path / "data.jsonl")])
    assert "empty: the reference '...' has no word" in capsys.readouterr().err


def test_a_document_of_200_000_words_without_a_full_stop_ends(runs, tmp_path):
    """ROUGE-L takes the square of a sentence's length: of one without a full stop a lead has at most 1,000 words."""
    document = "word " * 200_000
    assert [len(sentence.split()) for sentence in lead_of(example([document], ["r"]), 3)] == [1000]
    (tmp_path / "data.jsonl").write_text(json.dumps({"source": document, "target": "A word."}))
    main([str(runs["pg-0"]), "--data", str(tmp_path / "data.jsonl"), "--json", str(tmp_path / "m.json")])
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics["lead_row"]["words"]["mean"] == 1000 and metrics["examples"] == 1


def test_predictions_are_written_as_they_come(runs, tmp_path):
    """What was decoded before an interruption is on the disk."""
    run, examples = load_run(runs["pg-0"]), load(DATA, "test", 4)
    search, calls = beam_search, iter(range(9))

    def interrupt(*arguments, **options):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return search(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prediction, "beam_search", interrupt)
        decode_all(run, examples, tmp_path / "p.jsonl", batch_size=1)
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 2
