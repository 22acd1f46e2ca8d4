"""rouge.py against values worked out by hand, and its statistics against what they must do for any seed."""

import numpy as np
import pytest
from rouge_score import rouge_scorer

from shared import rouge

# The trap, by hand. Reference R and prediction P have the same two sentences, in opposite order:
#   R = the cat sat | on a mat          P = on a mat | the cat sat          (6 words each)
# L    one common subsequence of the whole texts: "the cat sat" or "on a mat", 3 words.
#      precision 3/6, recall 3/6, F1 1/2.
# Lsum "the cat sat" has all its 3 words in common with P's second sentence, "on a mat" with P's first: 6 words in all.
#      precision 6/6, recall 6/6, F1 1.
# 1    all 6 words are shared, F1 1.
# 2    P's pairs: on-a a-mat mat-the the-cat cat-sat; R's: the-cat cat-sat sat-on on-a a-mat. 4 of 5 shared, F1 4/5.
REFERENCE, PREDICTION = ["the cat sat", "on a mat"], ["on a mat", "the cat sat"]


def test_l_and_lsum_differ_as_worked_out_by_hand():
    scores = rouge.score([PREDICTION], [REFERENCE])
    assert {metric: values.tolist() for metric, values in scores.items()} == {
        "rouge1": [pytest.approx(100)],
        "rouge2": [pytest.approx(80)],
        "rougeL": [pytest.approx(50)],
        "rougeLsum": [pytest.approx(100)],
    }


def test_lsum_takes_the_union_over_predicted_sentences():
    # R = w1 w2 w3 w4 w5, P = w1 w2 w6 w7 w8 | w1 w3 w8 w9 w5 (Lin 2004, section 3.2: union w1 w2 w3 w5).
    # Recall 4/5, precision 4/10, F1 = 2 * 0.8 * 0.4 / 1.2 = 8/15.
    # L: P as a whole is w1 w2 w6 w7 w8 w1 w3 w8 w9 w5; w1 w2 w3 w5 is in it, in order: the same 4 words.
    # With P's sentences exchanged, w1 w3 w8 w9 w5 w1 w2 w6 w7 w8, only w1 w3 w5 is left: 3/5, 3/10, F1 2/5.
    reference, one, other = ["w1 w2 w3 w4 w5"], "w1 w2 w6 w7 w8", "w1 w3 w8 w9 w5"
    scores = rouge.score([[one, other], [other, one]], [reference, reference])
    assert scores["rougeLsum"] == pytest.approx([800 / 15, 800 / 15])
    assert scores["rougeL"] == pytest.approx([800 / 15, 40])


def test_not_without_line_breaks_lsum_silently_equals_l():
    # What happens to who joins sentences by blanks: both texts are one sentence each, Lsum becomes L, 50.
    scores = rouge.score([" ".join(PREDICTION)], [" ".join(REFERENCE)])
    assert scores["rougeLsum"] == pytest.approx([50]) and scores["rougeL"] == pytest.approx([50])


def test_a_string_with_line_breaks_is_the_list_of_its_sentences():
    as_lists = rouge.score([PREDICTION], [REFERENCE])
    as_strings = rouge.score(["\n".join(PREDICTION)], ["\n".join(REFERENCE)])
    for metric in rouge.METRICS:
        assert as_lists[metric] == pytest.approx(as_strings[metric])


def test_a_line_break_inside_a_sentence_of_a_list_does_not_cut_it():
    broken = rouge.score([["on a mat\nthe cat sat"]], [["the cat sat\non a mat"]])
    assert broken["rougeLsum"] == pytest.approx([50])


def test_l_is_not_changed_by_the_line_breaks():
    plain = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True).score(" ".join(REFERENCE), " ".join(PREDICTION))
    assert rouge.score([PREDICTION], [REFERENCE])["rougeL"] == pytest.approx([100 * plain["rougeL"].fmeasure])


def test_stemmer_is_on_unless_switched_off():
    # "walking" and "walked" have the stem "walk"; "dogs" and "dog" are four letters and three: only "dogs" is stemmed.
    assert rouge.score(["dogs walked"], ["dog walking"])["rouge1"] == pytest.approx([100])
    assert rouge.score(["dogs walked"], ["dog walking"], stemmer=False)["rouge1"] == pytest.approx([0])


def test_several_references_the_best_for_each_metric_by_itself():
    # Against "d c b a": all words, no pair. Against "a b x y": 2 of 4 words, 1 of 3 pairs.
    scores = rouge.score(["a b c d"], [[["d c b a"], ["a b x y"]]])
    assert scores["rouge1"] == pytest.approx([100]) and scores["rouge2"] == pytest.approx([100 / 3])


def test_sentences_of_one_reference_are_not_several_references():
    one = rouge.score(["a b"], [["a b", "c d"]])["rouge1"]  # recall 2/4, precision 1
    several = rouge.score(["a b"], [[["a b"], ["c d"]]])["rouge1"]
    assert one == pytest.approx([200 / 3]) and several == pytest.approx([100])


def test_values_are_per_example_in_order_and_an_empty_prediction_scores_0():
    scores = rouge.score([["a b"], [], "", ["a c"]], [["a b"], ["a b"], "a b", ["a b"]])
    assert scores["rouge1"] == pytest.approx([100, 0, 0, 50]) and scores["rouge1"].shape == (4,)


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ([], [], "as many predictions as references, got 0 and 0"),
        (["a"], ["a", "b"], "got 1 and 2"),
        (["a", "b"], ["a", " "], "reference 1 has no word"),
        (["a"], [[]], "reference 0 has no word"),
        (["a"], [[["b"], [""]]], "reference 0 has no word"),
    ],
)
def test_refuses(predictions, references, message):
    with pytest.raises(ValueError, match=message):
        rouge.score(predictions, references)


def test_signature_says_what_produced_the_numbers():
    from importlib.metadata import version

    expected = (
        f"ROUGE-1/2/L/Lsum F1 x 100 | rouge-score {version('rouge-score')} | stemmer yes | tokenizer default | "
        "Lsum split on newline | multi-reference max | n 500"
    )
    assert rouge.signature(500) == expected
    assert "stemmer no" in rouge.signature(500, stemmer=False)


# Statistics. Where a test draws afresh, its bound holds with probability 1 - 1e-6. For a distribution function from n
# values (Dvoretzky, Kiefer and Wolfowitz), and so for a share of n cases (Hoeffding), that is sqrt(ln(2 / 1e-6) / 2n).


def bound(n):
    return np.sqrt(np.log(2e6) / (2 * n))


def test_interval_agrees_with_the_normal_one_on_many_values():
    values = np.random.default_rng(1).normal(40, 10, size=2000)
    mean, low, high = rouge.bootstrap_interval(values)
    half = 1.959964 * values.std() / np.sqrt(2000)
    assert mean == pytest.approx(values.mean())
    assert low == pytest.approx(mean - half, abs=half / 10) and high == pytest.approx(mean + half, abs=half / 10)


def test_interval_covers_the_truth_as_often_as_it_says():
    # Intervals of 80 % from 60 normal values: the percentile bootstrap covers the mean 0 in 0.79 of the cases.
    samples = np.random.default_rng().normal(size=(1500, 60))
    intervals = [rouge.bootstrap_interval(sample, 0.8, samples=300, seed=n) for n, sample in enumerate(samples)]
    low, high = np.array(intervals).T[1:]
    assert abs(np.mean((low <= 0) & (0 <= high)) - 0.79) < bound(1500) + 0.01
    assert abs(np.mean(low > 0) - 0.105) < bound(1500) + 0.01  # as often above as below


def test_interval_of_a_constant_is_a_point_and_more_confidence_is_wider():
    assert rouge.bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 3.0, 3.0)
    values = np.arange(30.0)
    narrow, wide = rouge.bootstrap_interval(values, 0.5), rouge.bootstrap_interval(values, 0.99)
    assert wide[1] < narrow[1] < narrow[0] < narrow[2] < wide[2]


def test_same_seed_same_result_and_blocks_do_not_change_the_distribution(monkeypatch):
    values = np.random.default_rng(2).normal(size=200)
    assert rouge.bootstrap_interval(values) == rouge.bootstrap_interval(values)
    whole = rouge.bootstrap_interval(values)
    monkeypatch.setattr(rouge, "_blocks", lambda samples, n: iter([(samples - 1, n), (1, n)]))
    assert rouge.bootstrap_interval(values) == pytest.approx(whole, abs=0.02)


@pytest.mark.parametrize(("samples", "n"), [(10_000, 3), (10_000, 11_490), (7, 400_001), (5, 3_000_000)])
def test_blocks_hold_all_samples_and_stay_small(samples, n):
    shapes = list(rouge._blocks(samples, n))
    assert sum(rows for rows, _ in shapes) == samples and all(width == n for _, width in shapes)
    assert all(rows * n <= max(1_000_000, n) for rows, _ in shapes)


METHODS = ("approximate_randomization", "bootstrap")


@pytest.mark.parametrize("method", METHODS)
def test_equal_systems_have_p_1(method):
    values = np.random.default_rng(3).random(50) * 100
    assert rouge.paired_test(values, values.copy(), method) == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_a_clear_difference_is_significant_in_both_directions(method):
    rng = np.random.default_rng()
    a = rng.normal(40, 10, size=300)
    b = a + rng.normal(3, 5, size=300)  # 3 is 10 standard errors
    assert rouge.paired_test(a, b, method) < 0.01
    assert rouge.paired_test(b, a, method) == rouge.paired_test(a, b, method)  # two-sided


@pytest.mark.parametrize("method", METHODS)
def test_pairing_matters(method):
    # One system is better by 1 on each example, but the examples differ by 100: only a paired test can see it.
    # Paired the wrong way round, the differences are 2a - 1: mean -1 with a standard error of 5.8.
    a = np.linspace(-50, 50, 101)
    assert rouge.paired_test(a, a + 1, method) < 0.001
    assert rouge.paired_test(a, (a + 1)[::-1], method) > 0.5


@pytest.mark.parametrize("method", METHODS)
def test_p_is_uniform_when_there_is_no_difference(method):
    # Exchangeable pairs: P(p <= x) = x, up to 1 / (samples + 1) for randomisation, nearly for the bootstrap with n 100.
    rng = np.random.default_rng()
    pairs = rng.normal(size=(300, 2, 100))
    p = np.sort([rouge.paired_test(a, b, method, samples=199, seed=n) for n, (a, b) in enumerate(pairs)])
    assert abs(p - np.arange(1, 301) / 300).max() < bound(300) + 0.02


def test_randomisation_on_a_case_that_can_be_counted():
    # Differences 1, 2, 3: of the 8 signings only +++ and --- reach |sum| 6, so p -> 2/8.
    # 10,000 draws of probability 1/4: within 5 standard errors (0.0043) of it, p 6e-7.
    p = rouge.paired_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], seed=int(np.random.default_rng().integers(2**31)))
    assert p == pytest.approx(0.25, abs=5 * 0.00433)


def test_bootstrap_on_a_case_that_can_be_counted():
    # Differences 0 and 2, mean 1: resamples 00, 02, 20, 22 have means 0, 1, 1, 2; |mean - 1| >= 1 for two of four.
    p = rouge.paired_test([0.0, 2.0], [0.0, 0.0], "bootstrap", seed=int(np.random.default_rng().integers(2**31)))
    assert p == pytest.approx(0.5, abs=5 * 0.005)


def test_p_is_never_0():
    a = np.arange(200.0)
    assert rouge.paired_test(a, a + 1, samples=99) == pytest.approx(1 / 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rouge.paired_test([1.0], [1.0, 2.0]), "1 values against 2"),
        (lambda: rouge.paired_test([1.0], [2.0], "t"), "unknown method 't'"),
        (lambda: rouge.paired_test([], []), "at least one"),
        (lambda: rouge.bootstrap_interval([1.0, float("nan")]), "finite"),
        (lambda: rouge.bootstrap_interval([1.0], confidence=95), "between 0 and 1, got 95"),
    ],
)
def test_statistics_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_table_has_a_row_per_system_with_mean_and_interval():
    one, other = {"rouge1": np.array([50.0, 50.0])}, {"rouge1": np.array([0.0, 100.0])}
    lines = rouge.table({"one": one, "other": other}).splitlines()
    assert lines[0] == "| system | rouge1 |" and lines[2] == "| one | 50.00 [50.00, 50.00] |"
    assert lines[3] == "| other | 50.00 [0.00, 100.00] |"
