"""The file of results, what is computed from it, and the choice of heads."""

import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ... import evaluate, predict
from ...decode import Setting, checksum, decode, write_heads
from ...evaluate import refuse_overlap
from ...experiments import focus
from ...experiments import sweep as sweeps
from ...experiments.sweep import (
    Sweep,
    checksums,
    content_selection_effects,
    main,
    ranked,
    sample,
    select_heads,
    sum_of_parts,
    synergy,
)
from ...loading import Run
from ..test_decode import SETTINGS, Words
from ..test_train import DATA


def test_checksums_tell_apart_whatever_changes_a_result(bart, documents):
    run, examples = Run(None, bart, Words()), [SimpleNamespace(references=[["x"]]) for _ in documents]

    def sums(documents=documents, examples=examples, **generation):
        return checksums(run, examples, documents, generation)

    first = sums(num_beams=1)
    assert first == sums(num_beams=1) and len(set(first.values())) == 3  # plain is as uniform
    other = [d._replace(keep=d.keep | {"oracle": [True] * len(d.ids)}) for d in documents]
    changed = sums(other, num_beams=1)
    assert {kind for kind in first if first[kind] != changed[kind]} == {"oracle"}
    assert first["plain"] != sums(num_beams=2)["plain"] != sums(documents[:-1], num_beams=1)["plain"]
    assert first["plain"] != sums(examples=[SimpleNamespace(references=[["y"]])] * 5, num_beams=1)["plain"]
    with torch.no_grad():
        bart.model.decoder.layers[1].fc2.bias[3] += 1e-3
    assert sums(num_beams=1)["plain"] != first["plain"]


# The file


class Fake:
    """Measures by a table; keeps what it is asked."""

    def __init__(self, values=None):
        self.asked, self.values = [], values or {}

    def measure(self, setting: Setting) -> dict[str, np.ndarray]:
        self.asked.append(setting)
        value = self.values.get(setting, len(self.asked) + 1 / 3)
        found = value if isinstance(value, dict) else {"rouge1": value, "rouge2": 0.0, "rouge1_recall": value}
        return {metric: np.array([value, value + 1]) for metric, value in found.items()}

    def sweep(self, path, depends=None, documents=0) -> Sweep:
        return Sweep(path, self.measure, depends or {}, documents)


def means(scores) -> list[float]:
    return [each["rouge1"].mean() for each in scores]


def test_a_setting_is_decoded_once_also_by_another_process(tmp_path):
    path, first, second = tmp_path / "new" / "sweep.jsonl", Fake(), Fake()
    sweep = first.sweep(path)
    scores = sweep.run([SETTINGS[1], SETTINGS[0], SETTINGS[1]])
    assert first.asked == [SETTINGS[1], SETTINGS[0]]
    again = second.sweep(path).run([SETTINGS[0], SETTINGS[1], SETTINGS[2]])
    assert second.asked == [SETTINGS[2]]
    # Bit for bit the same numbers, or a resumed sweep could rank heads otherwise than one that was not stopped.
    assert means(again[:2]) == means([scores[1], scores[0]]) == means(sweep.run([SETTINGS[0], SETTINGS[1]]))


@pytest.mark.parametrize("cut", [1, 20])
def test_a_killed_sweep_goes_on_after_a_half_written_last_line(tmp_path, cut):
    path, second, third = tmp_path / "sweep.jsonl", Fake(), Fake()
    Fake().sweep(path).run(SETTINGS[:3])
    path.write_bytes(path.read_bytes()[:-cut])  # without its line feed; in the middle
    second.sweep(path).run(SETTINGS)
    assert second.asked == (SETTINGS[3:] if cut == 1 else SETTINGS[2:])
    third.sweep(path).run(SETTINGS)
    assert third.asked == []


def test_a_file_of_something_else_is_not_written_to(tmp_path):
    for content in (b"a thesis", b"\xff\xfe\0"):
        (tmp_path / "thesis.txt").write_bytes(content)
        with pytest.raises(ValueError, match="thesis.txt holds something else than a sweep"):
            Fake().sweep(tmp_path / "thesis.txt")
        assert (tmp_path / "thesis.txt").read_bytes() == content


@pytest.mark.parametrize("scores", [{"rouge1": [1]}, {"rouge1": [1, 2]}, {"rouge1": [1, float("nan")]}, 3])
def test_scores_of_other_documents_or_metrics_do_not_count(tmp_path, scores):
    whole = dict.fromkeys(("rouge1", "rouge2", "rougeLsum", "rouge1_recall"), [3, 4])
    row, path = {"kind": "plain", "heads": "", "depends": 0}, tmp_path / "sweep.jsonl"
    changed = whole | scores if scores != {"rouge1": [1, 2]} and isinstance(scores, dict) else scores
    for found, asked in ((whole, []), (changed, [Setting("plain")])):
        path.write_text("[" * 100_000 + "\n" + json.dumps(row | {"scores": found}) + "\n")
        (fake := Fake()).sweep(path, documents=2).run([Setting("plain")])
        assert fake.asked == asked


def test_results_of_something_else_are_not_taken_and_not_lost(tmp_path):
    """Another model or other labels are decoded again; what does not depend on labels is not."""
    path, fake = tmp_path / "sweep.jsonl", Fake()
    path.write_text('not json\n[1, 2]\n{"kind": "a"}\n')
    kinds = ("plain", "uniform", "oracle", "system")
    for depends, expected in (
        (dict.fromkeys(kinds, 1), SETTINGS),
        (dict.fromkeys(kinds, 2), SETTINGS),
        (dict.fromkeys(kinds, 2) | {"oracle": 3}, [SETTINGS[2]]),
        (dict.fromkeys(kinds, 1), []),
    ):
        fake.asked = []
        fake.sweep(path, depends).run(SETTINGS)
        assert fake.asked == expected
    assert path.read_text().startswith("not json\n")


# What the paper makes of it


def layer_values(effects: dict[tuple[int, int], float]) -> dict[tuple[str, str], float]:
    """Scores of settings with one head each: 50 with uniform weights, the effect more with oracle masks."""
    return {
        (kind, write_heads({layer: [head]})): 50.0 + (effect if kind == "oracle" else 0.0)
        for (layer, head), effect in effects.items()
        for kind in ("oracle", "uniform")
    }


def test_section_4_1_effects_are_oracle_minus_uniform(tmp_path):
    values = layer_values(dict.fromkeys(product((1, 2), range(2)), 0.0))
    values |= {("oracle", "1:1"): 57.5, ("uniform", "1:1"): 53.0, ("uniform", "2:0"): 50.25, ("plain", ""): 50.0}
    fake = Fake(values)
    effects = content_selection_effects(fake.sweep(tmp_path / "s"), {1: [0, 1], 2: [0, 1]})
    assert {place: each["rouge1"].mean() for place, each in effects.items()} == {
        (1, 0): 0.0, (1, 1): 4.5, (2, 0): -0.25, (2, 1): 0.0
    }  # fmt: skip
    assert effects[1, 1]["over_plain"].tolist() == [7.5, 7.5]  # D10: the other reading of an improvement
    assert len(fake.asked) == 9 and {setting.kind for setting in fake.asked} == {"plain", "oracle", "uniform"}


def test_heads_are_ranked_by_effect_equal_ones_by_number():
    effects = {(1, head): {"rouge1": np.array([value, value])} for head, value in enumerate([2.0, 5.0, -1.0, 5.0])}
    effects[2, 0] = {"rouge1": np.array([9.0, 9.0])}
    assert ranked(effects) == {1: [1, 3, 0, 2], 2: [0]}


def test_section_4_2_synergy_adds_the_best_heads_first(tmp_path):
    """Together 1:1 and 1:2 gain more than the sum, all three gain less; heads are named in the order of adding."""
    values = layer_values({(1, 0): -1.0, (1, 1): 2.0, (1, 2): 3.0})
    together = {("oracle", "1:1-2"): 58.0, ("uniform", "1:1-2"): 49.0, ("oracle", "1:0-2"): 53.0}
    fake = Fake(values | together | {("uniform", "1:0-2"): 51.0})
    sweep = fake.sweep(tmp_path / "s")
    effects = content_selection_effects(sweep, {1: [0, 1, 2]})
    steps = synergy(sweep, effects)
    assert list(steps) == [(1, (2,)), (1, (2, 1)), (1, (2, 1, 0))]
    assert [gain["rouge1"].mean() for gain in steps.values()] == [3.0, 9.0, 2.0]
    other_layer = {(2, 0): {metric: values + 9 for metric, values in effects[1, 0].items()}}
    assert sum_of_parts(effects | other_layer, 1)["rouge1_recall"].tolist() == [4.0, 4.0]
    assert len(fake.asked) == len(set(fake.asked)) == 1 + 6 + 4


def test_analysis_set_is_a_random_sample_in_order():
    chosen = sample(range(50), 10)
    assert chosen == sorted(set(chosen)) == sample(range(50), 10) and len(chosen) == 10 and chosen != list(range(10))
    assert sample(range(50), 60) == list(range(50))


def test_section_5_heads_are_selected_four_at_a_time(tmp_path):
    """D11: candidates are the 4, 8, 12, 16 best heads of each layer, not "no heads".

    ROUGE-1 + ROUGE-2 decides, here against ROUGE-1.
    """
    heads = range(16)
    effects = {(layer, head): {"rouge1": np.array([(head * 7) % 16 + 0.0])} for layer in (1, 2) for head in heads}
    order = sorted(heads, key=lambda head: -((head * 7) % 16))
    texts = [write_heads({layer: order[:count]}) for layer in (1, 2) for count in (4, 8, 12, 16)]
    values = {("system", text): {"rouge1": 40.0, "rouge2": 20.0} for text in texts}
    values["system", texts[0]] = {"rouge1": 45.0, "rouge2": 10.0}
    values["system", texts[5]] = {"rouge1": 39.0, "rouge2": 22.0}
    fake = Fake(values)
    best, tried = select_heads(fake.sweep(tmp_path / "s"), effects)
    assert best == write_heads({2: order[:8]})
    assert list(tried) == texts == [setting.heads for setting in fake.asked]


def test_selection_of_other_groups_and_of_equal_sets(tmp_path):
    """The last group may be smaller; of equal sets the first, with the fewest heads, is taken."""
    effects = {(1, head): {"rouge1": np.array([-head + 0.0])} for head in range(6)}
    fake = Fake({("t", text): 40.0 for text in ("1:0-3", "1:0-5")})
    best, tried = select_heads(fake.sweep(tmp_path / "s"), effects, labels="t")
    assert list(tried) == ["1:0-3", "1:0-5"] and best == "1:0-3"
    assert len(select_heads(fake.sweep(tmp_path / "s"), effects, labels="t", group=2)[1]) == 3


# The command

ANALYSIS = ["--data", DATA, "--documents", "4", "--max-length", "10", "--batch-size", "3"]


def test_analysis_by_one_command_resumes(runs, tmp_path, monkeypatch, capsys):
    """Sweep, choice of heads with the first tagger and focus; a second start decodes for the focus alone."""
    path, calls, beams = tmp_path / "m.json", [], []

    def counted(run, documents, settings, batches, **generation):
        calls.extend((setting, len(documents)) for setting in settings.values())
        beams.extend(generation["num_beams"] for _ in settings)
        return decode(run, documents, settings, batches, **generation)

    for module in (sweeps, focus):
        monkeypatch.setattr(module, "decode", counted)
    flags = [str(runs / "base"), "--tagger", str(runs / "tagger"), str(runs / "weak"), "--select", "--group", "2"]
    flags += [*ANALYSIS, "--effects", "--focus", "--json", str(path), "--sweep-file", str(tmp_path / "sweep.jsonl")]
    main(flags)
    first = json.loads(path.read_text())
    found = first["analysis"]["base"]
    settings = 2 * 2 * 4 + 2 * 2 * 3 + 1 + 2 * 2  # single heads, heads together, plain, choice
    assert len(calls) == settings + 1 and found["documents"] == 4  # and focus
    assert beams == [1] * (settings + 1)  # Appendix A: beam 1 in all analysis experiments
    assert len((tmp_path / "sweep.jsonl").read_text().splitlines()) == settings
    assert [(row["layer"], row["head"]) for row in found["effects"]] == [(i, h) for i in (1, 2) for h in range(4)]
    assert found["selection"]["tagger"] == "tagger" and found["split"] == "validation" and found["data"] == DATA
    tried = {row["heads"]: row["rouge1"] + row["rouge2"] for row in found["selection"]["tried"] if row["heads"]}
    assert tried[found["selection"]["heads"]] == max(tried.values()) and len(tried) == 4
    assert len(found["focus"]) == 8 and "copy_content" in found["focus"][0]
    assert f"heads {found['selection']['heads']} chosen with tagger" in capsys.readouterr().out
    calls.clear()
    main(flags)
    assert calls == [(Setting("plain"), 4)] and json.loads(path.read_text()) == first


def test_evaluate_masks_the_heads_that_were_chosen_but_not_on_the_documents_they_were_chosen_on(runs, tmp_path, capsys):
    """--heads FILE.json, in evaluate and predict; a summariser that the file does not know is named."""
    path, out = str(tmp_path / "heads.json"), tmp_path / "m.json"
    base, tagger = str(runs / "base"), ["--tagger", str(runs / "tagger")]
    main([base, *tagger, "--select", "--group", "4", *ANALYSIS, "--json", path, "--sweep-file", str(tmp_path / "s")])
    chosen = json.loads((tmp_path / "heads.json").read_text())["analysis"]["base"]["selection"]["heads"]
    quick = [*tagger, "--heads", path, "--data", DATA, "--max-length", "8", "--limit", "3", "--json", str(out)]
    evaluate.main([base, *quick])
    assert json.loads(out.read_text())["systems"]["base+tagger"]["heads"] == chosen
    text, rows = tmp_path / "in.txt", tmp_path / "out.jsonl"
    text.write_text("a storm hit the town .\n")
    predict.main([base, str(text), *tagger, "--heads", path, "--out", str(rows)])
    assert json.loads(rows.read_text())["heads"] == chosen
    capsys.readouterr()
    for flags, message in (
        ([base, *quick, "--limit", "24", "--split", "validation"], "documents that are then tested"),
        ([str(runs / "half"), *quick], "heads.json is not what"),
    ):
        with pytest.raises(SystemExit) as stop:
            evaluate.main(flags)
        assert stop.value.code == 2 and message in capsys.readouterr().err.splitlines()[-1]


def test_documents_that_heads_were_chosen_on_are_known_by_their_text():
    stories = [SimpleNamespace(source=text) for text in ("a b", "c d", "e f")]
    refuse_overlap([checksum("a b"), checksum("c d")], stories[2:])
    with pytest.raises(ValueError, match="chosen on 1 documents that are then tested"):
        refuse_overlap([checksum("a b"), checksum("c d")], stories[1:])


def test_d10_improvements_are_over_uniform_weights_and_over_the_plain_model(tmp_path):
    """D10: both readings of Figure 3 stand in the rows; the right side has all heads and the sum of the parts."""
    values = {("plain", ""): 50.0}
    for heads, oracle, uniform in (("1:0", 53, 50), ("1:1", 51, 50), ("1:0-1", 60, 45)):
        values |= {("oracle", heads): oracle, ("uniform", heads): uniform}

    def measure(setting):
        return {metric: np.array([0, 2.0]) + values[setting] for metric in ("rouge1", "rouge1_recall")}

    sweep = Sweep(tmp_path / "s", measure)
    effects = content_selection_effects(sweep, {1: [0, 1]})
    steps, totals = sweeps.synergy_rows(sweep, effects)
    gains = [[row[over]["mean"] for over in ("over_uniform", "over_plain")] for row in steps]
    assert gains == [[3.0, 3.0], [15.0, 10.0]] and [(row["count"], row["added"]) for row in steps] == [(1, 0), (2, 1)]
    assert [row["added_effect"] for row in steps] == [3.0, 1.0]
    assert [(row["layer"], row["over"], row["together"]["mean"], row["parts"]["mean"]) for row in totals] == [
        (1, "over_uniform", 15.0, 4.0), (1, "over_plain", 10.0, 4.0)
    ]  # fmt: skip


@pytest.mark.parametrize(("plain", "is_said"), [(60.0, True), (50.0, False)])
def test_d11_heads_are_chosen_even_where_no_mask_is_better_and_this_is_said(plain, is_said):
    tried = [{"heads": "", "rouge1": plain, "rouge2": 1.0}, {"heads": "1:0", "rouge1": 40.0, "rouge2": 12.0}]
    chosen = {"heads": "1:0", "tagger": "t", "tried": tried}
    text = sweeps.report("s", {"documents": 3, "split": "validation", "sources_cut": 0, "selection": chosen})
    assert "heads 1:0 chosen with t" in text and ("without masks it did better" in text) == is_said


def test_the_length_penalty_of_appendix_a_does_not_count_with_one_beam():
    options = sweeps.Options(runs=("x",), decoding="cnn_dailymail", max_length=90)
    assert options.generation() == dict(num_beams=1, min_length=55, max_length=90, no_repeat_ngram_size=3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/base"], "--select, --effects or --focus"),
        (["{runs}/base", "--select"], "give --tagger RUN"),
        (["hub/name", "--effects", "--data", DATA], "--sweep-file"),
        (["hub/name", "--focus"], "give --data"),
        (["{runs}/base", "{runs}/../x/base", "--focus"], "same name"),
        (["{runs}/base", "--effects", "--documents", "0"], "--documents is 0"),
        (["{runs}/base", "--effects", "--json", "{runs}/one.jsonl", "--data", "{runs}/one.jsonl"], "overwritten"),
        (["{runs}/base", "--effects", "--json", "{runs}/base/log.jsonl", "--data", DATA], "overwritten"),
    ],
)
def test_bad_requests_end_with_one_line_before_any_decoding(runs, flags, message, capsys, monkeypatch):
    monkeypatch.setattr(sweeps, "decode", lambda *_, **__: pytest.fail("decoded"))
    (runs / "one.jsonl").write_text('{"source": "a storm hit .", "target": "a storm ."}\n')
    with pytest.raises(SystemExit) as stop:
        main([flag.format(runs=runs) for flag in flags])
    error = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and message in error[-1] and error[-1].startswith("error: ") and len(error) == 1
