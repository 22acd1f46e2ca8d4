"""Documents: units, labels, required units, matrices, the corpus and its batches."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from .. import documents
from ..decode import extract, same_positions
from ..documents import (
    DocumentBatches,
    collate,
    cut_document,
    document_matrix,
    make_document,
    positive_weight,
    prepare,
    sentence_of_edus,
)
from ..formats import read_dis
from ..matrices import c_tree
from ..model import ModelConfig
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
TWO_ROOTS = """( Root (span 1 2)
  ( Nucleus (leaf 1) (rel2par joint) (text _!it rained ,_!) ) ( Nucleus (leaf 2) (rel2par joint) (text _!it blew ._!) )
)"""


def example(**changes):
    fields = dict(id="one", document=SENTENCES, tree=TREE, summary=["a storm came ."], references=[["a"]])
    return SimpleNamespace(**fields | changes)


def two_roots(**options):
    """A document whose one sentence has two roots."""
    return labelled(example(document=["it rained , it blew ."], tree=TWO_ROOTS), **options)


def labelled(example, level="edu", **options):
    """A document with its oracle."""
    return documents.make_documents([example], Config(level=level, **options))[0]


def test_units_of_both_levels():
    edu, sentence = labelled(example()), labelled(example(), "sentence")
    assert edu.units == EDUS and edu.sentence.tolist() == [0, 0, 1, 1]
    assert sentence.units == SENTENCES and sentence.sentence.tolist() == [0, 1]
    # Heads (Hirao): 1 is the root, 2 hangs on 1, 4 on 1, 3 on 4; only 1 and 4 are within the sentence of the dependent.
    assert edu.required == [[], [0], [3], []] and sentence.required == [[], []]
    assert edu.labels.tolist() == [True, True, False, False]  # the oracle's pick brings its head
    assert sentence.labels.tolist() == [True, False]


def test_d17_the_right_one_of_two_nuclei_needs_the_left_one():
    """D17: as in DiscoBERT; the paper's "ancestors" alone are an option. Post-editing has no part in it."""
    assert two_roots().required == [[], [0]] and two_roots(right_nuclei=False).required == [[], []]
    np.testing.assert_array_equal(document_matrix(two_roots(), Config(attention="d_tree")), [[1, 0], [1, 0]])


def test_d12_positive_weight_is_negatives_per_positive():
    """D12: over all training documents, of the level's own units."""
    assert positive_weight([labelled(example()), two_roots()]) == 4 / 2
    assert positive_weight([labelled(example(), "sentence")]) == 1
    with pytest.raises(ValueError, match="no unit of the training documents shares a word with its summary"):
        positive_weight([two_roots()])


def test_sentence_level_needs_no_tree_but_edu_level_does():
    bare = example(tree=None)
    document = make_document(bare, Config(level="sentence"))
    assert document.units == SENTENCES and document.tree is None
    with pytest.raises(ValueError, match="one has no EDUs: give it a discourse tree"):
        make_document(bare, Config())
    with pytest.raises(ValueError, match=r"document 'one' has no discourse tree \(ID.dis\), which c_tree needs"):
        document_matrix(document, Config(level="sentence"))


def test_a_tree_of_another_text_is_refused():
    with pytest.raises(ValueError, match="3.dis: .*ifitstays,schoolsclo' in the EDUs, '.*whenitstays"):
        make_document(example(document=[SENTENCES[0], "when it stays , schools close ."]), Config(), "3.dis")
    with pytest.raises(ValueError, match="one:.*is the file cut"):
        make_document(example(tree=TREE[:200]), Config())


def test_edus_find_their_sentence_by_their_characters():
    """Whatever the blanks: a parser's "left ." is the text's "left."; empty sentences have no EDU."""
    sentences = ["He said", "that it rained, and", "", "left.", "Then all left ."]
    edus = ["He", "said that it rained ,", "and  left .", "Then\nall", "left ."]
    np.testing.assert_array_equal(sentence_of_edus(edus, sentences, "doc"), [0, 0, 1, 4, 4])
    for edus, message in ((["a b"], "EDUs and text are not the same: 'ab' in the"), (["a", "", "c"], "EDU 2 has no")):
        with pytest.raises(ValueError, match=f"^doc: {message}"):
            sentence_of_edus(edus, ["a", "c"], "doc")


def test_d10_the_matrix_of_a_cut_document_is_normalised_again(encoder_folder):
    """D10: the rows of the first units sum to 1 after the others have gone."""
    encoder = load_encoder(str(encoder_folder))
    pieces = np.cumsum([len(ids) for ids in encoder.tokenizer(EDUS).input_ids])
    document = cut_document(labelled(example()), Config(max_pieces=int(pieces[2])), encoder)
    assert document.units == EDUS[:3] and document.required == [[], [0], []] and document.was_cut
    matrix, whole = document_matrix(document, Config()), c_tree(read_dis(TREE))
    np.testing.assert_allclose(matrix, whole[:3, :3] / whole[:3, :3].sum(1, keepdims=True), rtol=1e-6)
    # A unit whose head was cut off attends to itself.
    assert document_matrix(document, Config(attention="d_tree")).tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    for most, units in ((pieces[3], 4), (pieces[3] - 1, 3), (1, 1), (0, 4)):  # one of just so many keeps all its units
        assert len(cut_document(labelled(example()), Config(max_pieces=int(most)), encoder).units) == units
    longer = labelled(example(document=["a " * 200, "b ."], tree=None), "sentence")
    assert cut_document(longer, Config(), encoder).was_cut and not cut_document(two_roots(), Config(), encoder).was_cut


class Config(SimpleNamespace):
    """What `prepare` reads of a TrainConfig."""

    def __init__(self, **changes):
        fields = dict(attention="c_tree", level="edu", max_pieces=0, shuffle_trees=False, seed=1, post_edit=True)
        super().__init__(**fields | dict(data="data", right_nuclei=True) | changes)

    def model_config(self, width):
        return ModelConfig(attention=self.attention, width=width, head_width=4, feed_forward=8)


def corpus(folder, level="edu", **changes):
    """Three documents, the second of one EDU."""
    single = example(id="two", document=["x ."], tree="( Root (leaf 1) (text _!x ._!) )")
    own = [labelled(e, level) for e in (example(), single, example(id="three"))]
    return prepare(own, Config(level=level, **changes), load_encoder(str(folder)))


def test_batches_hold_each_documents_own_vectors_and_matrix(encoder_folder):
    batch, encoder = collate(corpus(encoder_folder), [1, 0]), load_encoder(str(encoder_folder))
    assert batch.keep.tolist() == [[True, False, False, False], [True] * 4]
    np.testing.assert_allclose(batch.units[1].numpy(), encoder.encode(EDUS), atol=1e-5)
    np.testing.assert_allclose(batch.units[0, 0].numpy(), encoder.encode(["x ."])[0], atol=1e-5)
    np.testing.assert_allclose(batch.matrix[1].numpy(), c_tree(read_dis(TREE)), rtol=1e-6)
    assert batch.units[0, 1:].abs().sum() == 0 and batch.matrix[0].sum() == 1
    assert batch.labels.tolist() == [[False] * 4, [True, True, False, False]]
    assert collate(corpus(encoder_folder, attention="dot"), [0]).matrix is None


def test_from_data_to_attention_a_dependent_attends_to_its_parent(encoder_folder, make_model):
    """The whole path, data -> matrix -> batch -> X_out: EDU 2 receives the value of its parent 1, not the other way."""
    batch = collate(corpus(encoder_folder, attention="d_tree"), [1, 0])
    assert batch.matrix[1].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]  # row = dependent
    layer = make_model("d_tree").layers[0].attention
    value = layer.output(layer.value(batch.units[1]))  # what an EDU that attends to itself alone receives
    torch.testing.assert_close(layer(batch.units, batch.keep, batch.matrix)[1], value[[0, 0, 3, 0]])
    sentences = collate(corpus(encoder_folder, "sentence", attention="d_tree"), [0])
    assert sentences.matrix[0].tolist() == [[1.0, 0.0], [0.5, 0.5]]  # EDU 4 hangs on sentence 1, EDU 3 on EDU 4


def test_d2_post_editing_is_an_option(encoder_folder):
    """D2: of two roots in one sentence the second hangs on the first; released code: each attends to itself."""
    for post_edit, expected in ((True, [[1, 0], [1, 0]]), (False, [[1, 0], [0, 1]])):
        config = Config(attention="d_tree", post_edit=post_edit)
        own = prepare([two_roots()], config, load_encoder(str(encoder_folder)))
        assert own.matrices[0].tolist() == expected


def test_shuffled_trees_keep_the_shape_but_not_the_place(encoder_folder):
    """The control: the same numbers, rows and columns permuted together, another order for each document."""
    plain, shuffled = corpus(encoder_folder), corpus(encoder_folder, shuffle_trees=True)
    for a, b in zip(plain.matrices, shuffled.matrices, strict=True):
        np.testing.assert_allclose(sorted(np.diag(a)), sorted(np.diag(b)))
        np.testing.assert_allclose(b.sum(1), 1, rtol=1e-6)
    assert any(not np.array_equal(a, b) for a, b in zip(plain.matrices, shuffled.matrices, strict=True))
    assert torch.equal(collate(plain, [0]).units, collate(shuffled, [0]).units)


def test_batches_cover_each_document_once_an_epoch():
    sizes = [5, 9, 1, 7, 3, 3, 8]
    batches = DocumentBatches([SimpleNamespace(units=[""] * size) for size in sizes], 3, seed=0)
    stream = list(islice(batches, 6))
    epochs = [stream[:3], stream[3:]]
    assert stream == list(islice(batches, 6)) and epochs[0] != epochs[1]
    for epoch in epochs:
        assert sorted(sum(epoch, [])) == list(range(7))
        parts = sorted((sorted(sizes[i] for i in batch) for batch in epoch), key=min)
        assert parts == [[1, 3, 3], [5, 7, 8], [9]]


def test_two_documents_of_one_id_are_refused():
    with pytest.raises(ValueError, match="data: the id 'one' is in both train and validation; folds need unique ids"):
        documents.make_documents([example(), example()], Config())


def test_a_summary_is_complete_at_so_many_words():
    """D8: --max-words counts words, 8 of the first sentence here, not characters."""
    config = Config(count=4, max_words=8)
    document = make_document(example(), Config(level="sentence"))
    assert extract(document, np.array([2.0, 1.0]), config) == SENTENCES[:1]
    assert extract(document, np.array([2.0, 1.0]), Config(count=4, max_words=9)) == SENTENCES
    assert extract(document, np.array([2.0, 1.0]), Config(count=1, max_words=0)) == SENTENCES[:1]


def test_same_positions_are_those_of_most_documents():
    """A document that is no longer than a summary says nothing."""
    scores = [np.array([3.0, 2, 1]), np.array([9.0, 8, 7, 0]), np.array([0.0, 1, 2]), np.array([1.0, 2])]
    assert same_positions(scores, 2) == ([1, 2], 2 / 3)
    assert same_positions(scores[3:], 2) == ([], 0)


def test_exchanged_documents_have_the_same_units_elsewhere(encoder_folder):
    """What a model that does not read cannot tell from the documents as they are: lengths, places, labels."""
    own = corpus(encoder_folder)
    found = own.exchanged()
    assert list(found) == ["units exchanged between documents", "shuffled trees"]
    vectors = found["units exchanged between documents"].vectors
    assert [len(part) for part in vectors] == [4, 1, 4]
    np.testing.assert_allclose(np.sort(np.concatenate(vectors), 0), np.sort(np.concatenate(own.vectors), 0))
    assert any(not np.array_equal(a, b) for a, b in zip(vectors, own.vectors, strict=True))
    assert list(corpus(encoder_folder, attention="none").exchanged()) == ["units exchanged between documents"]
