"""The model: cached decoding = masked form, batch = one by one, sources kept once, errors."""

from functools import partial

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig

from ..approximator import SentenceEncoder
from ..attention import word_attention, words_of
from ..model import SentenceSparseBart, add_approximator, approximator_parameters, freeze
from ..selection import MODES, Selection, Sentences, objective, sentences_of
from .conftest import make_config, rough_model

BEAM = dict(
    num_beams=3, max_new_tokens=6, min_new_tokens=4, no_repeat_ngram_size=3, length_penalty=2.0,
    output_scores=True, return_dict_in_generate=True,
)  # fmt: skip


@pytest.fixture
def model() -> SentenceSparseBart:
    return rough_model("gru")


def rows(documents: dict[str, Tensor], chosen) -> dict[str, Tensor]:
    length = int(documents["attention_mask"][chosen].sum(1).max())
    return {name: tensor[chosen][:, :length] for name, tensor in documents.items()}


def scores_of(model, documents, **flags) -> Tensor:
    """Sequence scores: token ids alone often agree by luck."""
    return model.generate(**documents, **BEAM, **flags).sequences_scores


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_decoding_is_the_masked_form(model, documents, mode, beams):
    flags = {**BEAM, "num_beams": beams, "selection": Selection(mode, r=2)}
    if beams == 1:
        flags.pop("length_penalty")
    fast = model.generate(**documents, **flags)
    slow = model.generate(**documents, use_cache=False, **flags)
    assert torch.equal(fast.sequences, slow.sequences)
    for ours, theirs in zip(fast.scores, slow.scores, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_model_that_asks_for_no_cache_decodes_alike(model, documents):
    """As after a training with gradient checkpointing, whose config.json says use_cache false."""
    expected = scores_of(model, documents, selection=Selection("ideal", r=2))
    model.generation_config.use_cache = False
    found = scores_of(model, documents, selection=Selection("ideal", r=2))
    torch.testing.assert_close(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["ideal", "random"])
def test_d11_steps_with_barts_own_cache_choose_as_all_at_once(model, documents, mode):
    source = documents | {"selection": Selection(mode, r=1)}
    target = torch.tensor([[2, 7, 5, 9, 6]] * len(documents["input_ids"]))
    expected = model(**source, decoder_input_ids=target).logits
    cache = None
    found = []
    for token in target.split(1, 1):
        output = model(**source, decoder_input_ids=token, past_key_values=cache)
        found.append(output.logits)
        cache = output.past_key_values
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-4, rtol=1e-4)


def test_a_new_approximator_has_the_models_mode_and_dtype(documents):
    model = rough_model().bfloat16()
    add_approximator(model, "gru")
    source = documents | {"decoder_input_ids": torch.tensor([[2, 7]] * len(documents["input_ids"]))}
    once, again = (model(**source, selection=Selection("approx", r=1)).logits for _ in range(2))
    assert once.dtype == torch.bfloat16 and torch.equal(once, again)


def test_where_the_padding_token_is_the_end_every_token_is_read(model):
    """As in transformers."""
    model.config.pad_token_id = model.config.eos_token_id
    source = dict(input_ids=torch.tensor([[0, 7, 5, 2]]), sentence_ids=torch.tensor([[0, 0, 1, 2]]))
    masked = source | {"attention_mask": torch.ones(1, 4, dtype=torch.long)}
    torch.testing.assert_close(scores_of(model, source), scores_of(model, masked))


def test_full_is_the_generate_of_transformers(model, documents):
    """Beams, sampling, and several results of a source."""
    bart = BartForConditionalGeneration(make_config()).eval()
    bart.load_state_dict(model.state_dict(), strict=False)
    plain = {name: documents[name] for name in ("input_ids", "attention_mask")}
    theirs = bart.generate(**plain, **BEAM).sequences_scores
    torch.testing.assert_close(scores_of(model, documents), theirs, atol=1e-5, rtol=1e-5)
    sampled = dict(do_sample=True, num_return_sequences=2)
    for flags in (sampled, dict(num_beams=4, num_return_sequences=3)):
        found = []
        for generate in (partial(model.generate, **documents), partial(bart.generate, **plain)):
            torch.manual_seed(5)
            found.append(generate(**flags, max_new_tokens=8, min_new_tokens=5))
        assert torch.equal(*found)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_of_a_batch_is_the_document_alone(model, documents, mode):
    """No beam reads another source, and padding sentences are never chosen."""
    selection = Selection(mode, r=2)
    together = scores_of(model, documents, selection=selection)
    for document in range(3):
        alone = scores_of(model, rows(documents, [document]), selection=selection)
        torch.testing.assert_close(together[document], alone[0], atol=1e-5, rtol=1e-5)
    turned = scores_of(model, rows(documents, [2, 0, 1]), selection=selection)
    torch.testing.assert_close(turned, together[[2, 0, 1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chosen", [[0], [0, 1, 2]])
def test_padding_that_all_documents_have_changes_nothing(model, documents, mode, chosen):
    """Also where every row is equally long; with and without a choice, or an attention_mask."""
    short = rows(documents, chosen)
    long = {}
    for name, value in {"input_ids": 1, "attention_mask": 0, "sentence_ids": -1}.items():
        long[name] = torch.nn.functional.pad(short[name], (0, 3), value=value)
    unmasked = {name: long[name] for name in ("input_ids", "sentence_ids")}
    for r in (2, 5):
        expected = scores_of(model, short, selection=Selection(mode, r))
        for source in (long, unmasked):
            found = scores_of(model, source, selection=Selection(mode, r))
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES[1:])
def test_limit_of_many_sentences_is_full_attention(model, documents, mode):
    full = scores_of(model, documents)
    five, two = (scores_of(model, documents, selection=Selection(mode, r)) for r in (5, 2))
    torch.testing.assert_close(five, full, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(two, full, atol=1e-3)


@pytest.mark.parametrize("mode", ["ideal", "approx"])  # model_free hardly depends on the query
def test_d13_each_beam_chooses_for_itself(model, documents, mode):
    """A beam's choice is that of its query alone; gathered words give what the mask gives."""
    mask, ids = documents["attention_mask"], documents["sentence_ids"]
    states = model.get_encoder()(documents["input_ids"], attention_mask=mask)[0]
    cache = model.project(states, ids, mask, Selection(mode, r=1))
    memory = cache.memories[0]
    attention = model.attentions[0]
    hidden = torch.randn(3, 4, 16)  # 4 beams that ask for different things
    queries = attention.scaled_queries(hidden)
    rest = (memory, cache.sentences, cache.selection, range(1))
    keep = attention.select(hidden, queries, *rest)
    assert not torch.equal(keep, keep[:, :1].expand_as(keep)) and (keep.sum(-1) == 1).all()
    for beam in range(4):
        alone = attention.select(hidden[:, beam : beam + 1], queries[:, :, beam : beam + 1], *rest)
        assert torch.equal(alone, keep[:, beam : beam + 1])
    expected = word_attention(queries, memory.keys, words_of(keep, ids)) @ memory.values
    found = attention.attend_gathered(queries, memory.pairs, keep, cache)
    torch.testing.assert_close(found, expected)


def test_generate_changes_nothing_that_it_is_given(model, documents):
    rest = {name: documents[name] for name in ("attention_mask", "sentence_ids")}
    outputs = model.get_encoder()(documents["input_ids"], attention_mask=rest["attention_mask"])
    states = outputs[0].clone()
    rest["encoder_outputs"] = outputs
    first, second = (scores_of(model, rest) for _ in range(2))
    assert torch.equal(outputs[0], states) and torch.equal(first, second)
    torch.testing.assert_close(scores_of(model, documents), first)


def test_all_tensors_are_made_on_the_models_device(documents, monkeypatch):
    """Forward and backward on the `meta` device, which refuses tensors of another one.

    Without the GRU, which packs sentences by their lengths: only real numbers have them.
    """
    model = rough_model("mean").to("meta")
    model.set_attn_implementation("eager")  # the masks of "sdpa" depend on numbers
    freeze(model, "integrated")
    # This reads numbers: on a real device.
    made = sentences_of(documents["sentence_ids"], documents["attention_mask"])
    sentences = Sentences(*(part.to("meta") for part in made[:3]))

    def encoded(states, *_, **__):
        return sentences._replace(encoded=model.sentence_encoder(states, sentences))

    monkeypatch.setattr(model, "find_sentences", encoded)
    source = documents["input_ids"].to("meta")
    target = torch.empty(3, 4, dtype=torch.long, device="meta")
    for mode in ("full", "ideal", "approx", "model_free"):
        output = model(source, labels=target, selection=Selection(mode, r=2), record=(record := []))
        losses = objective("integrated", output.loss, record, target != -100, sentences.exists)
        losses["loss"].backward()
    assert record[0].exact.device.type == losses["loss"].device.type == "meta"
    assert model.attentions[0].sentence_q.weight.grad is not None


def test_params_of_the_paper():
    """A.1: 58.8M more than bart-large: 31,481,856 + 2,098,176 + 12 * 2 * 1,049,600."""
    with torch.device("meta"):
        model = SentenceSparseBart(BartConfig(sentence_encoder="gru"))
        plain = SentenceSparseBart(BartConfig())
        bart = BartForConditionalGeneration(BartConfig())
    assert sum(parameter.numel() for parameter in approximator_parameters(model)) == 58_770_432
    whole, without = (sum(p.numel() for p in each.parameters()) for each in (model, plain))
    assert whole - without == 58_770_432
    ours, theirs = ({n: p.shape for n, p in each.named_parameters()} for each in (plain, bart))
    assert ours == theirs
    assert not list(SentenceEncoder("mean", 16).parameters())


def test_what_cannot_be_is_refused(documents):
    """A selection without an approximator or sentences, which full attention does not need."""
    plain = {name: documents[name] for name in ("input_ids", "attention_mask")}
    generate = partial(rough_model().generate, **plain)
    guided = GenerationConfig(guidance_scale=2.0)
    assert len(generate(max_new_tokens=3, output_attentions=False)) == 3
    for refused, message in (
        (partial(generate, selection=Selection("approx")), "'approx' needs an approximator"),
        (partial(generate, selection=Selection("ideal")), "give sentence_ids"),
        (partial(generate, encoder_repetition_penalty=2), "not support encoder_repetition_penalty"),
        (partial(generate, generation_config=guided), "not support guidance_scale"),
        (partial(Selection, r=0), "r is 0; at least 1"),
        (partial(Selection, "best"), "mode is 'best'; use one of full, ideal"),
        (partial(Selection, phi="tanh"), "phi is 'tanh'; use one of elu"),
        (partial(rough_model, "cnn"), "sentence encoder is 'cnn'; use one of gru, mean"),
        (
            partial(objective, "all", None, [], None, None),
            "phase is 'all'; use one of base, sparse",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


@pytest.mark.parametrize(
    ("ids", "attention", "message"),
    [
        ([[0, 0, -1, 1]], [[1, 1, 1, 1]], "2 of document 0 has sentence id -1; ids are 0, 1, 2"),
        ([[0, 0, 1, 1]], [[1, 1, 1, 0]], "3 of document 0 has sentence id 1"),
        ([[0, 0, 2, 2]], [[1, 1, 1, 1]], "2 of document 0 has sentence id 2"),
        ([[0, 0, 0], [0, -1, 0]], [[1, 1, 1], [1, 0, 1]], "2 of document 1 has sentence id 0"),
        ([[0, 0], [-1, -1]], [[1, 1], [0, 0]], "position 0 of document 1 has sentence id -1"),
        ([[0, 0, 1]], [[1, 1, 1, 1]], r"sentence_ids \(1, 3\) must be as input_ids \(1, 4\)"),
    ],
)
def test_bad_sentence_ids(ids, attention, message):
    with pytest.raises(ValueError, match=message):
        sentences_of(torch.tensor(ids), torch.tensor(attention))
