"""The model: cached decoding = masked form, batch = one by one, sources kept once, weights taken over, errors."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig
from transformers.modeling_outputs import BaseModelOutput

from ..approximator import SentenceEncoder
from ..attention import word_attention, words_of
from ..model import NOT_SUPPORTED, SentenceSparseBart, approximator_parameters, freeze, load_model
from ..selection import MODES, Selection, random_scores, saliency, top_r
from ..sentences import sentences_of
from ..text import train_tokenizer
from .conftest import make_config, rough_model

BEAM = dict(
    num_beams=3, max_new_tokens=10, min_new_tokens=4, no_repeat_ngram_size=3, length_penalty=2.0,
    output_scores=True, return_dict_in_generate=True,
)  # fmt: skip


@pytest.fixture
def model() -> SentenceSparseBart:
    return rough_model("gru")


def rows(documents: dict[str, Tensor], chosen) -> dict[str, Tensor]:
    length = int(documents["attention_mask"][chosen].sum(1).max())
    return {name: tensor[chosen][:, :length] for name, tensor in documents.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_decoding_is_the_masked_form(model, documents, mode, beams):
    model.selection = Selection(mode, r=2)
    flags = {**BEAM, "num_beams": beams}
    if beams == 1:
        flags.pop("length_penalty")
    fast = model.generate(**documents, **flags)
    slow = model.generate(**documents, use_cache=False, **flags)
    assert torch.equal(fast.sequences, slow.sequences)
    if beams > 1:  # token ids alone often agree by luck
        torch.testing.assert_close(fast.sequences_scores, slow.sequences_scores, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(fast.scores, slow.scores, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_full_is_the_generate_of_transformers(model, documents):
    bart = BartForConditionalGeneration(make_config()).eval()
    bart.load_state_dict(model.state_dict(), strict=False)
    ours = model.generate(**documents, **BEAM)
    theirs = bart.generate(documents["input_ids"], attention_mask=documents["attention_mask"], **BEAM)
    assert torch.equal(ours.sequences, theirs.sequences)
    torch.testing.assert_close(ours.sequences_scores, theirs.sequences_scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_of_a_batch_is_the_document_alone(model, documents, mode):
    """No beam reads another source, and padding sentences are never chosen."""
    model.selection = Selection(mode, r=2)
    together = model.generate(**documents, **BEAM)
    for document in range(3):
        alone = model.generate(**rows(documents, [document]), **BEAM)
        torch.testing.assert_close(together.sequences_scores[document], alone.sequences_scores[0], atol=1e-5, rtol=1e-5)
    turned = model.generate(**rows(documents, [2, 0, 1]), **BEAM)
    torch.testing.assert_close(turned.sequences_scores, together.sequences_scores[[2, 0, 1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chosen", [[0], [0, 1, 2]])
def test_padding_that_all_documents_have_changes_nothing(model, documents, mode, chosen):
    """Also where every row is equally long, with and without a choice to make; and without an attention_mask."""
    short = rows(documents, chosen)
    fill = {"input_ids": 1, "attention_mask": 0, "sentence_ids": -1}
    long = {name: torch.nn.functional.pad(tensor, (0, 3), value=fill[name]) for name, tensor in short.items()}
    for r in (2, 5):
        model.selection = Selection(mode, r=r)
        expected = model.generate(**short, **BEAM).sequences_scores
        torch.testing.assert_close(model.generate(**long, **BEAM).sequences_scores, expected, atol=1e-5, rtol=1e-5)
        unmasked = {name: long[name] for name in ("input_ids", "sentence_ids")}
        torch.testing.assert_close(model.generate(**unmasked, **BEAM).sequences_scores, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES[1:])
def test_limit_of_many_sentences_is_full_attention(model, documents, mode):
    full = model.generate(**documents, **BEAM).sequences_scores
    model.selection = Selection(mode, r=5)
    torch.testing.assert_close(model.generate(**documents, **BEAM).sequences_scores, full, atol=1e-5, rtol=1e-5)
    model.selection = Selection(mode, r=2)
    assert not torch.allclose(model.generate(**documents, **BEAM).sequences_scores, full, atol=1e-3)


@pytest.mark.parametrize("mode", ["ideal", "approx", "mean_key"])  # model_free hardly depends on the query
def test_d13_each_beam_chooses_for_itself(model, documents, mode):
    """The choice of a beam is that of its query alone; the gathered words give what the mask gives."""
    model.selection = selection = Selection(mode, r=1)
    states = model.get_encoder()(documents["input_ids"], attention_mask=documents["attention_mask"])[0]
    cache = model.project(states, documents["sentence_ids"], documents["attention_mask"])
    attention, hidden = model.attentions[0], torch.randn(3, 4, 16)  # 4 beams that ask for different things
    queries, memory, sentences = attention.scaled_queries(hidden), cache.memories[0], cache.sentences
    keep = attention.choose(hidden, queries, memory, sentences, selection, range(1))
    assert not torch.equal(keep, keep[:, :1].expand_as(keep)) and (keep.sum(-1) == 1).all()
    for beam in range(4):
        parts = hidden[:, beam : beam + 1], queries[:, :, beam : beam + 1]
        alone = attention.choose(*parts, memory, sentences, selection, range(1))
        assert torch.equal(alone, keep[:, beam : beam + 1])
    keys, values = (attention.split(part) for part in memory.keys_values.unbind(2))
    if mode == "ideal":
        scores = saliency(word_attention(queries, keys, sentences.is_word), sentences.membership).mean(1)  # (B, W, N)
        assert torch.equal(scores.argmax(-1), keep.float().argmax(-1))
    expected = word_attention(queries, keys, words_of(keep, sentences.ids)) @ values
    torch.testing.assert_close(attention.attend_gathered(queries, memory, keep, cache), expected)
    everything = word_attention(queries, keys, sentences.is_word) @ values
    torch.testing.assert_close(attention.attend_all(queries, memory, cache.keep_words), everything)


def test_keys_and_values_are_made_once_and_of_selected_sentences_alone(model, documents):
    model.selection, read = Selection("random", r=1), []
    for projection in (model.attentions[1].k_proj, model.attentions[1].v_proj):
        projection.register_forward_hook(lambda module, inputs, output: read.append(inputs[0].numel() // 16))
    model.generate(**documents, num_beams=3, min_new_tokens=3, max_new_tokens=3)
    sentences = sentences_of(documents["sentence_ids"], documents["attention_mask"])
    keep = top_r(random_scores(sentences.ids, 5, layer=1, steps=range(3), seed=0), sentences.exists, 1)
    words = int((sentences.membership @ keep.any(1).float().unsqueeze(-1)).sum())  # of what some step selects
    assert sum(read) == 2 * words < 2 * sentences.membership.sum()


def test_words_that_no_step_selects_have_no_influence(model, documents):
    """And those selected in a layer have: a mask that does nothing would fail."""
    model.selection = Selection("random", r=1)
    target, mask, ids = torch.randint(4, 31, (3, 3)), documents["attention_mask"], documents["sentence_ids"]
    states = model.get_encoder()(documents["input_ids"], attention_mask=mask)[0].detach()

    def logits(states: Tensor, record=None) -> Tensor:
        source = dict(encoder_outputs=BaseModelOutput(states), attention_mask=mask, sentence_ids=ids)
        return model(**source, labels=target, record=record).logits

    record = []
    before = logits(states, record)
    used = torch.stack([each.keep for each in record]).any(0).any(1)  # (B, N)
    assert used.any() and (~used[0]).any()
    is_used = used.gather(1, ids.clamp_min(0)) & (ids >= 0)  # (B, S)
    assert torch.equal(logits(states + 9 * (~is_used).unsqueeze(-1)), before)
    assert not torch.allclose(logits(states + 9 * is_used.unsqueeze(-1)), before, atol=1e-2)


def test_generate_changes_nothing_that_it_is_given(model, documents):
    outputs = model.get_encoder()(documents["input_ids"], attention_mask=documents["attention_mask"])
    states = outputs[0].clone()
    rest = {name: documents[name] for name in ("attention_mask", "sentence_ids")}
    first, second = (model.generate(encoder_outputs=outputs, **rest, **BEAM) for _ in range(2))
    assert torch.equal(outputs[0], states)
    assert torch.equal(first.sequences_scores, second.sequences_scores)
    torch.testing.assert_close(model.generate(**documents, **BEAM).sequences_scores, first.sequences_scores)


def test_sampling_and_several_results_are_those_of_transformers(model, documents):
    bart = BartForConditionalGeneration(make_config()).eval()
    bart.load_state_dict(model.state_dict(), strict=False)
    plain = {name: documents[name] for name in ("input_ids", "attention_mask")}
    for flags in (dict(do_sample=True, num_return_sequences=2), dict(num_beams=4, num_return_sequences=3)):
        found = []
        for generate in (partial(model.generate, **documents), partial(bart.generate, **plain)):
            torch.manual_seed(5)
            found.append(generate(**flags, max_new_tokens=8, min_new_tokens=5))
        assert torch.equal(*found)


@pytest.mark.parametrize("argument", NOT_SUPPORTED)
def test_what_generate_cannot_do_is_refused(model, documents, argument):
    """What would read the source's tokens, or a cache of its own, would else be dropped in silence."""
    value = {"cache_implementation": "static", "encoder_no_repeat_ngram_size": 1}.get(argument, 2)
    off = {"encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0, "guidance_scale": 1.0}  # transformers'
    off |= dict.fromkeys(("trust_remote_code", "use_mtp", "output_attentions"), False)
    message = f"generate does not support {argument} here"
    with pytest.raises(ValueError, match=message):
        model.generate(**documents, **{argument: value})
    if hasattr(model.generation_config, argument):
        with pytest.raises(ValueError, match=message):
            model.generate(**documents, generation_config=GenerationConfig(**{argument: value}))
        setattr(model.generation_config, argument, value)
        with pytest.raises(ValueError, match=message):
            model.generate(**documents)
        setattr(model.generation_config, argument, off.get(argument))
        assert len(model.generate(**documents, max_new_tokens=2)) == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(model, documents, dtype):
    """Every mode runs and gives numbers; `full` is near float32."""
    exact = model(**documents, labels=torch.full((3, 4), 5)).logits
    half = copy.deepcopy(model).to(dtype)
    for mode in MODES:
        half.selection = Selection(mode, r=2)
        assert half.generate(**documents, max_new_tokens=4, num_beams=2).shape[0] == 3
        assert half(**documents, labels=torch.full((3, 4), 5), record=[]).logits.isfinite().all()
    half.selection = Selection()
    error = (half(**documents, labels=torch.full((3, 4), 5)).logits.float() - exact).abs().max()
    assert error < 0.1 * exact.abs().max()


def test_params_of_the_paper():
    """A.1: 58.8M additional parameters on bart-large: 31,481,856 + 2,098,176 + 12 * 2 * 1,049,600."""
    with torch.device("meta"):
        model = SentenceSparseBart(BartConfig(sentence_encoder="gru"))
        plain = SentenceSparseBart(BartConfig())
        bart = BartForConditionalGeneration(BartConfig())
    count = sum(parameter.numel() for parameter in approximator_parameters(model))
    assert count == 58_770_432
    assert count == sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in plain.parameters())
    assert {n: p.shape for n, p in plain.named_parameters()} == {n: p.shape for n, p in bart.named_parameters()}
    assert sum(p.numel() for p in SentenceEncoder("mean", 16).parameters()) == 0
    assert sum(p.numel() for p in SentenceEncoder("attention", 16).parameters()) == 16 * 16 + 16 + 16


def test_saved_and_loaded_again(model, documents, tmp_path):
    model.selection = Selection("approx", r=2)
    before = model.generate(**documents, **BEAM).sequences_scores
    model.save_pretrained(tmp_path / "model")
    train_tokenizer(["a storm"], 300).save_pretrained(tmp_path / "model")
    loaded, _ = load_model(str(tmp_path / "model"))
    loaded.selection = Selection("approx", r=2)
    torch.testing.assert_close(loaded.generate(**documents, **BEAM).sequences_scores, before)


def test_what_a_selection_needs(documents):
    """An approximator, sentences; full attention needs neither."""
    model, plain = rough_model(), {name: documents[name] for name in ("input_ids", "attention_mask")}
    for mode, message in (
        ("approx", "mode 'approx' needs an approximator: load a run"),
        ("ideal", "give sentence_ids"),
    ):
        model.selection = Selection(mode)
        with pytest.raises(ValueError, match=message):
            model.generate(**plain, max_new_tokens=3)
    model.selection = Selection()
    assert len(model.generate(**plain, max_new_tokens=3)) == 3


def test_unknown_names_are_refused():
    for options in ({"r": 0}, {"mode": "best"}, {"phi": "tanh"}):
        with pytest.raises(ValueError, match="r is 0; at least 1|'best'; use one of full, ideal|'tanh'; use one"):
            Selection(**options)
    with pytest.raises(ValueError, match="sentence encoder is 'cnn'; use one of gru, mean, attention"):
        rough_model("cnn")
    with pytest.raises(ValueError, match="phase is 'all'; use one of base, sparse, kl, integrated"):
        freeze(rough_model(), "all")


@pytest.mark.parametrize(
    ("ids", "attention", "message"),
    [
        ([[0, 0, -1, 1]], [[1, 1, 1, 1]], "position 2 of document 0 belongs to no sentence"),
        ([[0, 0, 1, 1]], [[1, 1, 1, 0]], "position 3 of document 0 is padding and must have sentence id -1"),
        ([[0, 0, 2, 2]], [[1, 1, 1, 1]], "position 2 of document 0 leaves a gap"),
        ([[0, 1, 0, 1]], [[1, 1, 1, 1]], "position 2 of document 0 leaves a gap"),
        ([[1, 1, 2, 2]], [[1, 1, 1, 1]], "position 0 of document 0 leaves a gap"),
        ([[0, 0], [-1, 0]], [[1, 1], [0, 1]], "position 1 of document 1 has padding before a token"),
        ([[0, 0], [-1, -1]], [[1, 1], [0, 0]], "document 1 has no token"),
        ([[0, 0, 1]], [[1, 1, 1, 1]], r"sentence_ids \(1, 3\) must be as input_ids \(1, 4\)"),
    ],
)
def test_bad_sentence_ids(ids, attention, message):
    with pytest.raises(ValueError, match=message):
        sentences_of(torch.tensor(ids), torch.tensor(attention))
