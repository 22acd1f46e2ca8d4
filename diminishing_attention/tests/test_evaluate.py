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

from .. import decode as decoding
from .. import evaluate as evaluation
from ..decode import Output, decode, extract
from ..evaluate import (
    common_name,
    decode_all,
    group,
    in_lines,
    lead_of,
    main,
    novel_share,
    repetition_ratio,
    score,
    summarise,
)
from ..loading import load_run
from ..search import beam_search
from ..search_released import released_search
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
    assert len({output.text for output in together}) >= 3
    assert together == [decode_all(run, [e], batch_size=1)[0] for e in examples]
    rows = [Output("a", False), Output("b", True), Output("c", False)]
    monkeypatch.setattr(evaluation, "decode", lambda run, examples: [(i, rows[i]) for i in (2, 0, 1)])
    assert decode_all(run, examples[:3]) == rows


def test_flags_of_decoding_reach_the_search(runs, monkeypatch):
    seen = []
    monkeypatch.setattr(decoding, "beam_search", lambda *a, **k: seen.append(k) or beam_search(*a, **k))
    run, examples = load_run(runs["pg-0"]), load(DATA, "test", 1)
    list(decode(run, examples, 1, beam=3, length_penalty=1.5, trigram_blocking=True))
    expected = {"beam": 3, "length_penalty": 1.5, "trigram_blocking": True, "average": True, "never": (0, 1)}
    assert seen == [expected | {"min_length": 0, "max_length": 10}]


def test_d16_released_ends_as_the_code_that_the_model_comes_from(trained, monkeypatch):
    seen = []
    monkeypatch.setattr(decoding, "released_search", lambda *a, **k: seen.append(k) or released_search(*a, **k))
    bert = dict(model="bertsum-abs", width=16, layers=1, heads=2, feed_forward=16, decoder_layers=1)
    for config in (SMALL, replace(SMALL, **bert)):
        run = load_run(trained(config, config.model))
        list(decode(run, load(DATA, "test", 1), 1, released=True, max_length=5))
    assert [options["presumm"] for options in seen] == [False, True] and seen[1]["max_length"] == 5


def test_a_length_penalty_takes_the_place_of_the_average(runs, monkeypatch, capsys):
    """As flag it switches the run's average off, and the other way; both at once are refused."""
    seen = []
    monkeypatch.setattr(evaluation, "evaluate", lambda *a, **options: seen.append(options) or {"systems": {}})
    monkeypatch.setattr(evaluation, "tables", str)
    for flags in (["--length-penalty", "1.5"], ["--length-penalty", "0"], ["--average", "True"]):
        main([str(runs["pg-0"]), *flags])
    assert [(options.get("length_penalty"), options.get("average")) for options in seen] == [
        (1.5, False), (0, None), (0, True),
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main([str(runs["pg-0"]), "--length-penalty", "1.5", "--average", "True"])
    assert "--average True and --length-penalty exclude each other" in capsys.readouterr().err


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


ROWS = ("lead-2", "reference", "pg", "dim", "gain", "dim only")
# Title of a table: its columns, in order, as the paper has them, and the metric in each.
ALL = {"R-1": "rouge1", "R-2": "rouge2", "R-L": "rougeLsum"}
SHORT = ALL | {"repeated 3-grams %": "repetition3", "novel 2-grams %": "novel2"}
COLUMNS = {
    "Table 1: ROUGE": ALL | {"parameters": "parameters"},
    "Table 2: model-based scores": {"bertscore": "bertscore"},
    "Table 3: ROUGE against lead-2": {name: f"lead_{metric}" for name, metric in ALL.items()},
    "Table 4: ablation": SHORT | {"words": "words"},
    "Minus pg": SHORT | {"bertscore": "bertscore"},
    "Minus pg, seed by seed": SHORT,
    "Figure 2: repeated n-grams, %": {f"{n}-gram": f"repetition{n}" for n in (1, 2, 3, 4, 5)},
    "Figure 3: n-grams that are not in the source, %": {f"{n}-gram": f"novel{n}" for n in (1, 2, 3, 4)}
    | {"words": "words"},
}


def test_every_cell_of_every_table_is_the_number_that_its_column_names():
    """Of made-up numbers, each another one."""
    names = sorted({metric for columns in COLUMNS.values() for metric in columns.values()} - {"parameters"})
    value = {(row, metric): 100.0 * i + j for i, row in enumerate(ROWS) for j, metric in enumerate(names)}

    def cell(row: str, metric: str, kind: str = "mean") -> dict:
        return {kind: value[row, metric], "low": 0.25, "high": 0.5, "seeds": [value[row, metric], 7.0]}

    def scores(row: str) -> dict:
        return {metric: cell(row, metric) for metric in names}

    gain = {metric: cell("gain", metric, "difference") | {"p": 0.125} for metric in names}
    systems = {"pg": {"scores": scores("pg"), "difference": None, "parameters": 1234567}}
    systems["dim"] = {"scores": scores("dim"), "difference": gain, "parameters": 7654321}
    metrics = {"lead": 2, "examples": 5, "signature": "sig", "more": ["bertscore"], "systems": systems,
               "lead_row": scores("lead-2"), "reference_row": scores("reference"),
               "ablation": {"dim": {"only": {"scores": scores("dim only")}}}}  # fmt: skip
    *printed, last = evaluation.tables(metrics).split("\n\n")
    assert [part.split("\n")[0] for part in printed] == list(COLUMNS) and last.endswith("5 examples; sig")
    for part, (title, columns) in zip(printed, COLUMNS.items(), strict=True):
        head, *rows = [[text.strip() for text in line.strip("|").split("|")] for line in part.split("\n")[1:]]
        assert head == ["system", *columns]
        for name, *cells in rows[1:]:
            row = "gain" if title.startswith("Minus") else name
            for text, metric in zip(cells, columns.values(), strict=True):
                if metric == "parameters":
                    assert text == {"pg": "1,234,567", "dim": "7,654,321", "lead-2": "-"}[name]
                elif title.endswith("seed by seed"):
                    assert text == f"{value[row, metric]:+.2f}, +7.00"
                else:
                    sign, end = ("+", " p 0.125") if row == "gain" else ("", "")
                    assert text == f"{value[row, metric]:{sign}.2f} [0.25, 0.50]{end}"


def test_d11_repetition_counts_every_occurrence_after_the_first():
    """D11: "a man a plan a canal a plan": 1-grams a 4, plan 2, man, canal; of 2-grams "a plan" twice."""
    words = "a man a plan a canal a plan".split()
    assert repetition_ratio(words, 1) == pytest.approx(4 / 8)
    assert repetition_ratio(words, 2) == pytest.approx(1 / 7)
    assert repetition_ratio(["a"] * 5, 3) == pytest.approx(2 / 3) and repetition_ratio([], 1) == 0


def test_novel_ngrams_are_those_that_the_source_lacks():
    source = "the cat sat on the mat".split()
    summary = "the cat sat on a mat".split()
    assert novel_share(summary, source, 1) == pytest.approx(1 / 6)  # "a"
    assert novel_share(summary, source, 2) == pytest.approx(2 / 5)  # "on a", "a mat"
    assert novel_share("mat the cat".split(), source, 2) == pytest.approx(1 / 2)  # words of the source in a new order
    assert novel_share(source, source, 3) == 0 and novel_share(["dog"], source, 1) == 1 and novel_share([], [], 1) == 0


def test_a_line_of_an_output_is_split_further():
    assert in_lines("One is here. Two went.\nThree") == ["One is here.", "Two went.", "Three"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"split": "test", "examples": 24, "lead": 3, "beam": 2, "released": False, "rows": 16, "sentences": 3}),
        (["--split", "validation", "--limit", "5"], {"split": "validation", "examples": 5}),
        (["--lead", "1", "--batch-size", "4", "--sentences", "2"], {"lead": 1, "rows": 4, "sentences": 2}),
        (["--beam", "3", "--min-length", "2", "--max-length", "7"], {"beam": 3, "min_length": 2, "max_length": 7}),
        (["--trigram-blocking", "True", "--released", "True"], {"trigram_blocking": True, "released": True}),
    ],
)
def test_every_option_changes_what_it_says(runs, tmp_path, monkeypatch, flags, expected):
    seen, real_load, real = {}, load, decode

    def search(run, batch, **options):
        seen.setdefault("rows", len(batch.source))
        seen.update(options)
        return decoding_search(run, batch, **options)

    def record(run, examples, batch_size=16, sentences=3, **options):
        seen.update(sentences=sentences)
        return real(run, examples, batch_size, sentences, **options)

    decoding_search = decoding.search_batch
    monkeypatch.setattr(decoding, "search_batch", search)
    monkeypatch.setattr(evaluation, "decode", record)
    monkeypatch.setattr(evaluation, "load", lambda data, *a: seen.update(split=a[0]) or real_load(data, *a))
    main([str(runs["pg-0"]), "--json", str(tmp_path / "m.json"), *flags])
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics["split"] == seen["split"]
    seen |= {name: metrics[name] for name in ("examples", "lead")}
    assert {name: seen[name] for name in expected} == expected


def test_an_output_that_is_the_data_is_refused_before_it_is_opened(runs, tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text('{"source": "a", "target": "b"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "data.jsonl")
    for flags in (["--json", "data.jsonl"], ["--csv", "link.jsonl"], ["--json", "x.json", "--csv", "./x.json"]):
        names = [flag if flag.startswith("--") else str(tmp_path / flag) for flag in flags]
        with pytest.raises(SystemExit):
            main([str(runs["pg-0"]), "--data", str(tmp_path / "data.jsonl"), *names])
        assert "would be overwritten" in capsys.readouterr().err
    assert "source" in (tmp_path / "data.jsonl").read_text()


def test_documents_that_were_cut_are_counted(trained, capsys):
    run = trained(replace(SMALL, max_source=20))
    main([str(run), "--limit", "3"])
    assert f"{run.name}: 3 documents were cut to --max-source tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lead", "0"], "--lead is 0; it must be a whole number from 1"),
        (["--sentences", "0"], "--sentences is 0"),
        (["--batch-size", "-1"], "--batch-size is -1"),
        (["--min-length", "-1"], "--min-length is -1"),
        (["--length-penalty", "nan"], "--length-penalty is nan"),
        (["--length-penalty", "1e9"], "--length-penalty is 1000000000.0"),
        (["--beam", "200"], "beam is 200; it must be from 1 to the vocabulary's 120 tokens"),
        (["--length-penalty", "-1"], "--length-penalty is -1.0; it must be a finite number from 0 to 10"),
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
    monkeypatch.setattr(decoding, "beam_search", lambda *a, **k: pytest.fail("decoded"))
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
        patch.setattr(decoding, "beam_search", interrupt)
        decode_all(run, examples, tmp_path / "p.jsonl", batch_size=1)
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 2
