"""What defines a run: presets with their sources, sizes in proportion, the rate, which documents belong to a split."""

from dataclasses import replace

import pytest

from .. import model, units
from ..config import PRESETS, TrainConfig, learning_rate
from ..documents import choose_documents


def test_d11_learning_rate_is_a_factor():
    """D11, Section 5.1: factor times min(n^-0.5, n warmup^-1.5): rising to factor / sqrt(warmup), then falling."""
    config = TrainConfig(learning_rate=0.01, warmup=400)
    assert learning_rate(399, config) == pytest.approx(0.01 / 20)
    assert learning_rate(0, config) == pytest.approx(0.01 / 400**1.5)
    assert learning_rate(1599, config) == pytest.approx(0.01 / 40)


def chosen(config, split, total):
    return set(choose_documents(config, split, total))


def test_folds_part_the_corpus():
    """No document is in two of the three parts of a fold, and each is tested once: or all numbers would be too high."""
    tests = []
    for fold in range(5):
        config = TrainConfig(folds=5, fold=fold)
        train, validation, test = (chosen(config, split, 30) for split in ("train", "validation", "test"))
        assert not (train & validation or train & test or validation & test)
        assert [len(train), len(validation), len(test)] == [18, 6, 6] and len(train | validation | test) == 30
        tests.append(test)
    assert len(set.union(*tests)) == 30
    with pytest.raises(ValueError, match="--folds 9: 5 documents are too few for so many, a fold has none"):
        choose_documents(TrainConfig(folds=9, fold=7), "test", 5)
    folded, plain = TrainConfig(folds=5), TrainConfig()
    assert folded.splits("test") == ("train", "validation") and plain.splits("test") == ("test",)


def test_examples_are_drawn_by_their_seed():
    """Section 5.2, low resource: another seed is another subset; validation and test data stay whole."""
    one, two = (TrainConfig(examples=10, examples_seed=seed) for seed in (0, 1))
    assert len(chosen(one, "train", 50)) == len(chosen(two, "train", 50)) == 10
    assert chosen(one, "train", 50) != chosen(two, "train", 50)
    assert len(chosen(one, "test", 50)) == 50
    assert chosen(TrainConfig(examples=60), "train", 50) == set(range(50))  # or all that there is


def test_section_5_1_six_edus_or_three_sentences():
    assert TrainConfig(level="edu").count == 6 and TrainConfig(level="sentence").count == 3
    assert TrainConfig(level="edu", units_taken=2).count == 2


def test_d20_presets_hold_these_values():
    """Each value with its source; D20: this repository's values for GUM."""
    paper = dict(
        data="cnn_dailymail_trees",  # Section 5.1: CNN/DM
        encoder="bert-base-uncased",  # Section 3: BERT; released code
        learning_rate=0.01,  # Section 5.1; D11: a factor
        warmup=2400,  # D26: released code; Section 5.1: "standard"
        steps=24_000, batch_size=32, save_every=300, max_pieces=1000,  # released code; D20
        max_words=80,  # released code; D8
    )  # fmt: skip
    gum = dict(data="gum", folds=5, steps=240, batch_size=8, learning_rate=0.002, warmup=50, save_every=20,
               mixed_precision="bf16")  # fmt: skip
    balanced = dict(balanced=True)
    presets = {"tiny": {}, "gum": gum, "gum-balanced": gum | balanced, "paper": paper}
    assert PRESETS == presets | {"paper-balanced": paper | balanced}
    defaults = TrainConfig()
    for values in PRESETS.values():
        replace(defaults, **values).check()
    sizes = defaults.model_config(768)
    assert (sizes.layers, sizes.dropout, model.CLASSIFIER, sizes.dense_inner) == (2, 0.1, 100, 512)
    assert (model.PLACES, model.POSITIONS, units.MAX_TOKENS) == (512, 1000, 128)
    assert defaults.post_edit and defaults.right_nuclei
    assert defaults.pooling == "cls" and not defaults.standardize


def test_d16_sizes_keep_the_papers_proportions():
    """D16: at D = 768 Section 5.1 exactly; at another width as many times the width."""
    for width, default, balanced in ((768, (64, 3072), (512, 512)), (384, (64, 1536), (256, 256))):
        for given, sizes in ((False, default), (True, balanced)):
            model = TrainConfig(balanced=given).model_config(width)
            assert (model.width, model.head_width, model.feed_forward) == (width, *sizes)
    model = TrainConfig(balanced=True, head_width=32, feed_forward=7).model_config(768)
    assert (model.head_width, model.feed_forward) == (32, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(folds=2), "need 3 folds or more"),
        (dict(shuffle_trees=True, attention="dot"), "--attention dot reads no tree"),
        (dict(shuffle_trees=True, attention="previous"), "--attention previous reads no tree"),
        (dict(post_edit=False), "--post-edit is for --attention d_tree"),
        (dict(heads=8), "the same weights in every head"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes).check()
