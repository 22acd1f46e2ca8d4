"""Documents: units, labels, required units, matrices, the corpus and its batches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from .. import documents
from ..documents import Corpus, collate, cut_document, document_matrix, make_document
from ..matrices import c_tree
from ..trees import read_dis
from ..units import load_encoder

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


def example(**changes):
    fields = dict(id="one", document=SENTENCES, edus=EDUS, tree=TREE, summary=["a storm came ."])
    return SimpleNamespace(**fields | changes)


def test_units_of_both_levels():
    edu, sentence = make_document(example(), "edu"), make_document(example(), "sentence")
    assert edu.units == EDUS and edu.sentence.tolist() == [0, 0, 1, 1]
    assert sentence.units == SENTENCES and sentence.sentence.tolist() == [0, 1]
    # Heads (Hirao): 1 is the root, 2 hangs on 1, 4 on 1, 3 on 4; only 1 and 4 are within the sentence of the dependent.
    assert edu.required == [[], [0], [3], []] and sentence.required == [[], []]
    assert edu.labels.tolist() == [True, True, False, False]  # the oracle's pick brings its head
    assert sentence.labels.tolist() == [True, False]


def test_d17_restriction_follows_the_tree_before_its_post_editing():
    """D17: two roots within one sentence: post-editing hangs one on the other, but no relation says that it must."""
    tree = """( Root (span 1 2)
      ( Nucleus (leaf 1) (rel2par joint) (text _!it rained ,_!) )
      ( Nucleus (leaf 2) (rel2par joint) (text _!it blew ._!) )
    )"""
    edus = ["it rained ,", "it blew ."]
    document = make_document(example(document=["it rained , it blew ."], edus=edus, tree=tree), "edu")
    assert document.required == [[], []]
    np.testing.assert_array_equal(document_matrix(document, "d_tree", "edu"), [[1, 0], [1, 0]])


def test_sentence_level_needs_no_tree_but_edu_level_does():
    bare = example(edus=None, tree=None)
    document = make_document(bare, "sentence")
    assert document.units == SENTENCES and document.tree is None
    with pytest.raises(ValueError, match="one has no EDUs: give it a discourse tree"):
        make_document(bare, "edu")
    with pytest.raises(ValueError, match="document 'one' has no discourse tree, which c_tree attention needs"):
        document_matrix(document, "c_tree", "sentence")


def test_a_tree_of_another_text_is_refused():
    with pytest.raises(ValueError, match="data:3 one: the leaves of the tree are not the EDUs"):
        make_document(example(edus=["the mayor said", "x", *EDUS[2:]]), "edu", "data:3 ")
    with pytest.raises(ValueError, match="one.*'if'"):
        make_document(
            example(document=["the mayor said that a storm came .", "when it stays , schools close ."]), "edu"
        )


def test_a_cut_tree_is_refused():
    with pytest.raises(ValueError, match="one:.*is the file cut"):
        make_document(example(tree=TREE[:200]), "edu")


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="level is 'word'; use edu or sentence"):
        make_document(example(), "word")


def test_d10_the_matrix_of_a_cut_document_is_normalised_again():
    """D10: the rows of the first units sum to 1 after the others have gone."""
    document = cut_document(make_document(example(), "edu"), 3)
    assert document.units == EDUS[:3] and document.required == [[], [0], []]
    matrix, whole = document_matrix(document, "c_tree", "edu"), c_tree(read_dis(TREE))
    np.testing.assert_allclose(matrix, whole[:3, :3] / whole[:3, :3].sum(1, keepdims=True), rtol=1e-6)
    assert cut_document(document, 3) is document
    alone = cut_document(make_document(example(), "edu"), 1)
    for kind in ("d_tree", "c_tree"):  # a unit whose head was cut off attends to itself
        assert document_matrix(alone, kind, "edu").tolist() == [[1.0]]
    np.testing.assert_allclose(document_matrix(document, "d_tree", "edu").sum(1), 1)


def corpus(folder, cache, attention="c_tree", shuffle_seed=None, level="edu"):
    examples = [
        example(),
        example(id="two", document=["it rained ."], edus=["it rained ."], tree=single("it rained .")),
        example(id="three"),
    ]
    made = [make_document(e, level) for e in examples]
    return Corpus(made, load_encoder(str(folder)), attention, level, str(cache), shuffle_seed)


def single(text):
    return f"( Root (leaf 1) (text _!{text}_!) )"


def test_limit_a_document_of_one_unit(encoder_folder, tmp_path):
    """One EDU, one sentence: it attends to itself at either level."""
    for level in ("edu", "sentence"):
        for attention in ("d_tree", "c_tree", "c_tree_nuclearity"):
            own = corpus(encoder_folder, tmp_path, attention, level=level)
            assert own.matrices[1].tolist() == [[1.0]]


def test_batches_hold_each_documents_own_vectors_and_matrix(encoder_folder, tmp_path):
    own = corpus(encoder_folder, tmp_path)
    encoder = load_encoder(str(encoder_folder))
    batch = collate(own, [1, 0])
    assert batch.keep.tolist() == [[True, False, False, False], [True] * 4]
    np.testing.assert_allclose(batch.units[1].numpy(), encoder.encode(EDUS), atol=1e-5)
    np.testing.assert_allclose(batch.units[0, 0].numpy(), encoder.encode(["it rained ."])[0], atol=1e-5)
    np.testing.assert_allclose(batch.matrix[1].numpy(), c_tree(read_dis(TREE)), rtol=1e-6)
    assert batch.units[0, 1:].abs().sum() == 0 and batch.matrix[0].sum() == 1
    assert batch.labels.tolist() == [[False] * 4, [True, True, False, False]]
    assert collate(corpus(encoder_folder, tmp_path, "dot"), [0]).matrix is None


def test_matrices_are_built_once(encoder_folder, tmp_path, monkeypatch):
    first = [np.array(matrix) for matrix in corpus(encoder_folder, tmp_path).matrices]
    files = set(tmp_path.iterdir())
    monkeypatch.setattr(documents, "document_matrix", None)
    again = corpus(encoder_folder, tmp_path).matrices
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    monkeypatch.undo()
    other = corpus(encoder_folder, tmp_path, "c_tree_nuclearity").matrices
    assert set(tmp_path.iterdir()) > files and not np.array_equal(other[0], first[0])


def test_shuffled_trees_keep_the_shape_but_not_the_place(encoder_folder, tmp_path):
    """The control: the same numbers, rows and columns permuted together, another order for each document."""
    plain, shuffled = corpus(encoder_folder, tmp_path), corpus(encoder_folder, tmp_path, shuffle_seed=1)
    for a, b in zip(plain.matrices, shuffled.matrices, strict=True):
        np.testing.assert_allclose(sorted(np.diag(a)), sorted(np.diag(b)))
        np.testing.assert_allclose(b.sum(1), 1, rtol=1e-6)
    assert any(not np.array_equal(a, b) for a, b in zip(plain.matrices, shuffled.matrices, strict=True))
    assert torch.equal(collate(plain, [0]).units, collate(shuffled, [0]).units)
