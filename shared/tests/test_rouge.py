"""rouge.py against values worked out by hand, and with the stems of rouge-score."""

from importlib.metadata import version

import pytest

RougeScorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer

from shared import rouge

# The trap, by hand. Reference R and prediction P have the same two sentences, in opposite order:
#   R = the cat sat | on a mat          P = on a mat | the cat sat          (6 words each)
# L    one common subsequence of the whole texts: "the cat sat" or "on a mat", 3 words.
#      precision 3/6, recall 3/6, F1 1/2.
# Lsum "the cat sat" has all its 3 words in common with P's second sentence, "on a mat" with P's
# first: 6 words in all.
#      precision 6/6, recall 6/6, F1 1.
# 1    all 6 words are shared, F1 1.
# 2    P's pairs: on-a a-mat mat-the the-cat cat-sat; R's: the-cat cat-sat sat-on on-a a-mat. 4 of 5
# shared, F1 4/5.
REFERENCE, PREDICTION = ["the cat sat", "on a mat"], ["on a mat", "the cat sat"]


def test_lsum_takes_the_union_over_predicted_sentences():
    # R = w1 w2 w3 w4 w5, P = w1 w2 w6 w7 w8 | w1 w3 w8 w9 w5 (Lin 2004, section 3.2: union w1 w2 w3
    # w5). Recall 4/5, precision 4/10, F1 = 2 * 0.8 * 0.4 / 1.2 = 8/15.
    # As one sentence with P's two exchanged, w1 w3 w8 w9 w5 w1 w2 w6 w7 w8, only w1 w3 w5 is left:
    # 3/5, 3/10, F1 2/5.
    one, other = "w1 w2 w6 w7 w8", "w1 w3 w8 w9 w5"
    scores = rouge.score(
        [[one, other], [other, one], [f"{other} {one}"]], [[["w1 w2 w3 w4 w5"]]] * 3
    )
    assert scores["rougeLsum"] == pytest.approx([800 / 15, 800 / 15, 40])


@pytest.mark.parametrize(
    ("prediction", "references", "f1"),
    [
        (PREDICTION, [REFERENCE], {"rouge1": 100, "rouge2": 80, "rougeLsum": 100}),
        # Stems: "walking" and "walked" have the stem "walk"; "dog" is too short to be stemmed.
        (["dogs walked"], [["dog walking"]], {"rouge1": 100}),
        # Of several references the best counts, for each metric by itself: all words; 1 of 3 pairs.
        (["a b c d"], [["d c b a"], ["a b x y"]], {"rouge1": 100, "rouge2": 100 / 3}),
        # Sentences of one reference are not several references: recall 2/4, precision 1.
        (["a b"], [["a b", "c d"]], {"rouge1": 200 / 3}),
        # Joined by blanks each text is one sentence, and Lsum is silently L.
        ([" ".join(PREDICTION)], [[" ".join(REFERENCE)]], {"rougeLsum": 50}),
        ([], [["a b"]], {"rouge1": 0}),
        (["a b"], [["..."]], {"rouge1": 0}),
    ],
)
def test_what_counts_as_a_text(prediction, references, f1):
    scores = rouge.score([prediction, ["a x"]], [references, [["a b"]]])
    assert {metric: scores[metric][0] for metric in f1} == pytest.approx(f1)
    assert scores["rouge1"][1] == pytest.approx(50)


def test_a_string_in_place_of_a_list_is_refused():
    """Its letters would be sentences."""
    for predictions, references in ((["a b"], [[["a b"]]]), ([["a b"]], [["a b"]])):
        with pytest.raises(ValueError, match="a list of its sentences, not a string"):
            rouge.score(predictions, references)


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        # Porter's stemmer has variants, which differ in words such as "died".
        ("die dye possible enjoy sky earliest", "died dying possibly enjoyed skies early"),
        # A few other letters in it.
        (
            "The mayor of the café in Zürich said that the naïve plan is off",
            "A café in Zurich is off , said mayors",
        ),
    ],
)
def test_english_is_that_of_rouge_score_to_the_digit(reference, prediction):
    theirs = RougeScorer(["rouge1", "rouge2"], use_stemmer=True).score(reference, prediction)
    values = rouge.score([[prediction]], [[[reference]]])
    for metric in theirs:
        assert values[metric].item() == pytest.approx(100 * theirs[metric].fmeasure, abs=1e-12)


def test_the_signature_has_all_settings():
    said = (
        f"rouge-score {version('rouge-score')} | stemmer yes | tokenizer rouge-score | "
        f"multi-reference max"
    )
    assert (
        rouge.signature("rouge1", "rouge-score")
        == f"ROUGE-1/2/Lsum F1 x 100 | {said} | sentences by untrained Punkt"
    )


@pytest.mark.parametrize(
    ("prediction", "reference", "rouge1"),
    [
        ("bá bẩn bó ở chờ", "bà bán bò ở chợ", 20.0),  # rouge-score reads b b b ch in both
        ("cá má hạ mả", "cà mà há mã", 0.0),
        ("Привет , GPT", "привет, мир", 50.0),
        ("Twitter社は黙る", "Twitter社は動く", 60.0),  # by characters: 3 of 5
        # a letter with its vowel sign is one: ฝ น ต ก, ฝ น ห ยุ ด
        ("ฝนตก", "ฝนหยุด", 200 * 2 / (4 + 5)),
        ("cafe\u0301", "café", 100.0),  # composed or not
    ],
)
def test_words_of_other_languages_are_whole(prediction, reference, rouge1):
    assert rouge.score([[prediction]], [[[reference]]])["rouge1"] == pytest.approx(
        [rouge1], abs=1e-9
    )
    assert "WORDS ARE UNICODE'S" in rouge.signature("rouge1", rouge.words_of([reference]))


def test_german_that_has_words_of_english_is_not_english():
    """Or "Mänchen" would be right for "München": both are m nchen."""
    assert rouge.words_of(["Er war in München", "was in Köln war"]) == "unicode"


def test_one_reference_of_which_rouge_score_reads_nothing_is_not_scored_0_in_an_english_corpus():
    corpus = ["The mayor of the town said that the plan is off"] * 20
    texts = [*corpus, "Город спит"]
    assert rouge.words_of([*corpus, "..."]) == "rouge-score" and rouge.words_of(texts) == "unicode"
    assert rouge.score([[text] for text in texts], [[[text]] for text in texts])[
        "rouge1"
    ].min() == pytest.approx(100)


@pytest.mark.parametrize(
    ("reference", "tokenizer"),
    [
        ("Ein Hund schläft.", "13a"), ("Большая собака спит "
                                       "дома.", "13a"), ("कुत्ता सो रहा है।", "13a"),
        ("一只狗在睡觉。", "zh"), ("犬が眠っている。", "char"), ("สุนัขนอนหลับ", "char"), ("", "13a"),
        ("ཆར་པ་བབས།", "char"),
        ("ꦲꦸꦢꦤ꧀ꦢꦼꦫꦱ꧀ꦲꦶꦁꦏꦸꦛ", "char"), ("Twitter社はX Corpに", "char"),
    ],
)  # fmt: skip
def test_bleu_is_tokenised_by_the_script_of_the_references(reference, tokenizer):
    assert rouge.bleu_tokenizer([reference]) == tokenizer
    counts = rouge.bleu_counts(["x", reference], [["x"], [reference]], tokenize=tokenizer)
    assert not reference or rouge.bleu_of_sums(counts[1]) > 99.9
