"""rouge.py against values worked out by hand, and with the stems of rouge-score."""

import contextlib
import importlib.util
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
        rouge.signature("rouge1")
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
        ("walks", "walk", 0.0),  # no stems
    ],
)
def test_unicodes_words_are_whole(prediction, reference, rouge1):
    scores = rouge.score([[prediction]], [[[reference]]], "unicode")
    assert scores["rouge1"] == pytest.approx([rouge1], abs=1e-9)
    assert "WORDS ARE UNICODE'S" in rouge.signature("rouge1", "unicode")


ENGLISH = "The mayor of the town said that the plan is off"
TEXTS = {  # a language that the default of a metric does not read: (text, ROUGE reads, BLEU reads)
    "English": (ENGLISH, True, True),
    "German": ("Mänchen", False, True),
    "Vietnamese": ("bà bán bò ở chợ", False, True),
    "Hindi": ("कुत्ता सो रहा है।", False, True),
    "Chinese": ("一只狗在睡觉。", False, False),
    "Chinese names": ("Twitter社はX Corpに", False, False),
    "Thai": ("สุนัขนอนหลับ", False, False),
    "a Chinese name": (ENGLISH + ENGLISH + " 安", True, True),
    "no word": ("...", True, True),
}


REMEDIES = {"rouge": "--words unicode", "bleu": "--tokenize zh, ja-mecab or char"}


@pytest.mark.parametrize("name", TEXTS)
def test_references_that_a_metric_does_not_read_are_refused(name, capsys):
    text, *reads = TEXTS[name]
    for (metric, remedy), is_read in zip(REMEDIES.items(), reads, strict=True):
        said = f"^1 of 1 documents have references in .*: odd; give {remedy}$"
        for form in (text, [text]):
            with contextlib.nullcontext() if is_read else pytest.raises(ValueError, match=said):
                rouge.check_references({"odd": [ENGLISH, form]}, metric)
    rouge.check_references({"odd": [text]}, "rouge", words="unicode")
    rouge.check_references({"odd": [text]}, "bleu", tokenize="zh")
    rouge.check_references({"odd": [text]}, "none")
    assert capsys.readouterr() == ("", "")


def test_1_percent_of_the_texts_and_2_percent_of_their_letters_are_the_limits(
    capsys,
):
    """One by one: four Vietnamese texts among English ones would score 100 each."""
    rouge.check_references({"1": ["a" * 98 + "éé . "]})
    assert capsys.readouterr().err == ""
    corpus = {str(n): [ENGLISH] for n in range(99)} | {"odd": ["a" * 97 + "ééé . "]}
    rouge.check_references(corpus)
    said = "1 of 100 documents have references in letters that rouge-score does not read: odd\n"
    assert capsys.readouterr().err == said
    corpus.pop("0")
    with pytest.raises(ValueError, match="1 of 99 documents"):
        rouge.check_references(corpus)


@pytest.mark.parametrize(("tokenize", "text"), [("13a", "Ein Hund schläft."), ("zh", "一只狗。")])
def test_bleus_tokenizer_is_the_one_asked_for(tokenize, text):
    # with 13a a Chinese sentence is one word, whose counts of pairs are 0
    counts = rouge.bleu_counts([text], [[text]], tokenize)[0]
    assert counts[0] == counts[4] == 4
    assert f"tok:{tokenize}" in rouge.signature("bleu", tokenize=tokenize)


def test_a_tokenizer_without_its_library_says_how_to_get_it():
    if importlib.util.find_spec("MeCab"):
        pytest.skip("MeCab is installed")
    with pytest.raises(ValueError, match="(?s)--tokenize ja-mecab: .*pip install"):
        rouge.bleu_counts(["a"], [["a"]], "ja-mecab")
