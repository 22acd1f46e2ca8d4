"""From text to batches: unit vectors, units, labels, required units, matrices, batches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ..config import TrainConfig
from ..matrices import c_tree
from ..text import (
    Document,
    UnitEncoder,
    check_words,
    collate,
    cut,
    positive_weight,
    random_encoder,
    read_corpus,
    sentence_of_edus,
)
from ..trees import read_dis

TREE = """( Root (span 1 4)
  ( Nucleus (span 1 2) (rel2par span)
    ( Nucleus (leaf 1) (rel2par span) (text _!the mayor said_!) )
    ( Satellite (leaf 2) (rel2par attribution) (text _!that a storm came ._!) )
  )
  ( Satellite (span 3 4) (rel2par elaboration)
    ( Satellite (leaf 3) (rel2par condition) (text _!if it stays ,_!) )
    ( Nucleus (leaf 4) (rel2par span) (text _!schools close ._!) )
  )
)
"""
EDUS = ["the mayor said", "that a storm came .", "if it stays ,", "schools close ."]
SENTENCES = ["the mayor said that a storm came .", "if it stays , schools close ."]
TWO_ROOTS = """( Root (span 1 2)
  ( Nucleus (leaf 1) (rel2par joint) (text _!it rained ,_!) ) ( Nucleus (leaf 2) (rel2par joint) (text _!it blew ._!) )
)"""


def example(**changes):
    fields = dict(
        id="one", document=SENTENCES, tree=TREE, summary=["a storm came ."], references=[["a"]]
    )
    return SimpleNamespace(**fields | changes)


TWO_ROOTS_EXAMPLE = example(document=["it rained , it blew ."], tree=TWO_ROOTS)  # in one sentence


@pytest.fixture(scope="module")
def read():
    """Read some examples with an encoder of random weights."""
    texts = [*SENTENCES, "it rained , it blew .", "a hurt official of a town"]
    encoder = random_encoder(texts, width=16)

    def read(*examples, **changes):
        return read_corpus(examples, TrainConfig(**dict(attention="c_tree") | changes), encoder)

    read.encoder = encoder
    return read


def test_units_of_both_levels(read):
    (edu,), (sentence,) = read(example()), read(example(), level="sentence")
    assert edu.units == EDUS and edu.sentence.tolist() == [0, 0, 1, 1]
    assert sentence.units == SENTENCES and sentence.sentence.tolist() == [0, 1]
    # Heads (Hirao): 1 is the root, 2 hangs on 1, 4 on 1, 3 on 4; only 1 and 4 are within the
    # sentence of the dependent.
    assert edu.required == [[], [0], [3], []] and sentence.required == [[], []]
    assert edu.labels.tolist() == [True, True, False, False]  # the oracle's pick brings its head
    assert sentence.labels.tolist() == [True, False]


def test_d2_d17_of_two_nuclei_in_a_sentence_the_right_one_needs_the_left_one_and_hangs_on_it(read):
    """D17: as in DiscoBERT. D2: D-Tree is post-edited."""
    (document,) = read(TWO_ROOTS_EXAMPLE, attention="d_tree")
    assert document.required == [[], [0]] and document.matrix.tolist() == [[1, 0], [1, 0]]


def test_d12_positive_weight_is_negatives_per_positive(read):
    """D12: over all training documents, of the level's own units; all or none is refused."""
    assert positive_weight(read(example(), TWO_ROOTS_EXAMPLE)) == 4 / 2
    assert positive_weight(read(example(), level="sentence")) == 1
    post = example(document=["a storm came ."], tree=None)
    none, all_of_them = read(TWO_ROOTS_EXAMPLE), read(post, level="sentence", attention="dot")
    for documents, taken in ((none, 0), (all_of_them, 1)):
        said = f"the summaries take {taken} of all . units .* there is nothing to learn"
        with pytest.raises(ValueError, match=said):
            positive_weight(documents)


def test_sentences_need_no_tree_but_their_trees_attention_does(read):
    bare = example(tree=None)
    (document,) = read(bare, level="sentence", attention="dot")
    assert document.units == SENTENCES and document.matrix is None
    for changes, said in (
        ({"tree": None}, "one has no tree one.dis .*c_tree is read off it.*by python -m .*parse"),
        ({"tree": "( Root (leaf 1) )"}, "one.dis: EDUs and text are not the same: '' in the EDUs"),
        ({"document": ["when it ..."]}, "one.dis: .* 'themayorsaid.*' in the EDUs, 'whenit"),
    ):
        with pytest.raises(ValueError, match=said):
            read(example(**changes), level="sentence")


def test_edus_find_their_sentence_by_their_letters():
    """Whatever the blanks: "left ." is the text's "left."; empty sentences have no EDU."""
    sentences = ["He said", "that it rained, and", "", "left.", "Then all left ."]
    edus = ["He", "said that it rained ,", "and  left .", "Then\nall", "left ."]
    np.testing.assert_array_equal(sentence_of_edus(edus, sentences, "doc"), [0, 0, 1, 4, 4])
    with pytest.raises(ValueError, match="^doc: EDU 2 has no words"):
        sentence_of_edus(["a", "", "c"], ["a", "c"], "doc")


def test_d10_the_matrix_of_a_cut_document_is_normalised_again(read):
    """D10: the rows of the first units sum to 1 after the others have gone."""
    pieces = np.cumsum([len(ids) for ids in read.encoder.tokenizer(EDUS).input_ids])
    (document,) = read(example(), max_pieces=int(pieces[2]))
    assert document.units == EDUS[:3] and document.required == [[], [0], []] and document.was_cut
    whole = c_tree(read_dis(TREE))
    expected = whole[:3, :3] / whole[:3, :3].sum(1, keepdims=True)
    np.testing.assert_allclose(document.matrix, expected, rtol=1e-6)
    # A unit whose head was cut off attends to itself.
    (document,) = read(example(), max_pieces=int(pieces[2]), attention="d_tree")
    assert document.matrix.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_d7_the_oracle_reads_what_the_model_reads(read):
    """D7: of a cut document the best units that are left, with what they hang on, if left."""
    pieces = np.cumsum([len(ids) for ids in read.encoder.tokenizer(EDUS).input_ids])
    summary = dict(summary=["schools close if a storm stays ."])
    (whole,) = read(example(**summary))
    assert whole.labels.tolist() == [False, False, True, True]
    (document,) = read(example(**summary), max_pieces=int(pieces[1]))
    assert document.labels.tolist() == [True, True]
    chain = Document("a", ["x"] * 4, np.zeros(4, int), [[3, 1], [], [1, 3, 0], []], [])
    assert cut(chain, 3).required == [[], [], [1]] and cut(chain, 4) is chain


def test_d7_a_corpus_that_the_oracle_cannot_read_is_refused(capsys):
    """More than 1 % of the summaries with letters beside a-z; one among many is named."""
    english = example(id="b")
    hindi = example(id="a", references=[["a b"], ["\u092e\u094b\u0930 \u0928\u093e\u091a\u093e"]])
    check_words([hindi] + 99 * [english])
    assert capsys.readouterr().err == "1 of 100 documents have summaries not written in a-z: a\n"
    check_words([example(references=[])])
    with pytest.raises(ValueError, match="2 of 100 documents have .*: a, a; .* reads English"):
        check_words(2 * [hindi] + 98 * [english])


def test_d28_units_are_cut_at_so_many_pieces_each_with_its_own_marks(read):
    """D28: [CLS] and [SEP] of each unit count; just so many pieces keep all units."""
    pieces = np.cumsum([len(ids) for ids in read.encoder.tokenizer(EDUS).input_ids])
    assert pieces[0] == 3 + 2
    for most, units in ((pieces[3], 4), (pieces[3] - 1, 3), (1, 1), (0, 4)):
        assert len(read(example(), max_pieces=int(most))[0].units) == units
    longer = example(document=["a " * 600, "b ."], tree=None)
    assert read(longer, level="sentence", attention="dot")[0].was_cut
    assert not read(TWO_ROOTS_EXAMPLE)[0].was_cut
    # of 510 pieces: 512 with [CLS] and [SEP]
    texts = ["the " * 510, "the " * 530, "the " * 509 + "storm"]
    once, more, other = read.encoder.encode(texts)
    np.testing.assert_allclose(once, more, rtol=1.3e-6, atol=1e-5)
    assert np.abs(once - other).max() > 1e-4


SINGLE = example(id="two", document=["x ."], tree="( Root (leaf 1) (text _!x ._!) )")


def test_batches_hold_each_documents_own_vectors_and_matrix(read):
    batch = collate(read(SINGLE, example()))
    assert batch.keep.tolist() == [[True, False, False, False], [True] * 4]
    vectors = read.encoder.encode(["x .", *EDUS])
    np.testing.assert_allclose(batch.units[0, 0], vectors[0], atol=1e-5)
    np.testing.assert_allclose(batch.units[1], vectors[1:], atol=1e-5)
    np.testing.assert_allclose(batch.matrix[1].numpy(), c_tree(read_dis(TREE)), rtol=1e-6)
    assert batch.units[0, 1:].abs().sum() == 0 and batch.matrix[0].sum() == 1
    assert batch.labels.tolist() == [[False] * 4, [True, True, False, False]]
    assert collate(read(SINGLE, attention="dot")).matrix is None


# Unit vectors

TEXTS = ["a storm hit the town .", "nobody", "officials said nobody was hurt .", "hurt , hurt"]


def test_d23_a_vector_is_the_units_first_token_or_the_mean_over_its_tokens(read):
    """Section 3: the first token; released code: [CLS] unit [SEP], by itself.

    D23: the mean; padding does not count.
    """
    encoder = read.encoder
    encoder.tokenizer.padding_side = "left"  # as some are saved: it must not count either
    pooled = UnitEncoder(encoder.model, encoder.tokenizer, "mean").encode(TEXTS)
    for text, vector, mean in zip(TEXTS, encoder.encode(TEXTS, batch_size=2), pooled, strict=True):
        tokens = encoder.tokenizer(text, return_tensors="pt")
        assert encoder.tokenizer.convert_ids_to_tokens(tokens.input_ids[0].tolist())[0] == "[CLS]"
        with torch.no_grad():
            states = encoder.model(**tokens).last_hidden_state[0]
        np.testing.assert_allclose(vector, states[0].numpy(), atol=1e-5)
        np.testing.assert_allclose(mean, states.mean(0).numpy(), atol=1e-5)


def test_d6_the_encoder_is_in_eval_mode_and_frozen(read):
    """D6: also a model that comes in training mode; no weight asks for a gradient."""
    model = read.encoder.model.train().requires_grad_(True)
    encoder = UnitEncoder(model, read.encoder.tokenizer)
    assert np.array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS))
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    # there is some
    assert any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules())


def test_d9_random_encoder_gives_units_vectors_by_their_words():
    """D9: a seed is an encoder; the more words two units share, the nearer; "[SEP]" is text."""
    words = "storm town hurt said river bridge school rain".split()
    one, again, other = (
        random_encoder([" ".join(words)], width=64, seed=seed) for seed in (0, 0, 1)
    )
    texts = ["storm town hurt said", "storm town hurt river", "river bridge school rain"]
    base, near, far = vectors = one.encode(texts)
    assert np.array_equal(vectors, again.encode(texts))
    assert not np.allclose(vectors, other.encode(texts))
    assert np.linalg.norm(base - near) < np.linalg.norm(base - far)
    assert "[SEP]" not in one.tokenizer.tokenize("a [SEP] b")


def test_from_data_to_a_batch_a_dependent_attends_to_its_parent(read):
    """At both levels: EDU 2 to its parent 1, not the other way."""
    batch = collate(read(SINGLE, example(), attention="d_tree"))
    # row = dependent
    assert batch.matrix[1].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    (sentences,) = read(example(), level="sentence", attention="d_tree")
    # EDU 4 hangs on sentence 1, EDU 3 on EDU 4
    assert sentences.matrix.tolist() == [[1.0, 0.0], [0.5, 0.5]]
