"""Unit encoder and the arrays kept on disk."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ..units import UnitEncoder, cached_vectors, load_encoder, random_encoder

TEXTS = ["a storm hit the town .", "nobody", "officials said nobody was hurt .", "hurt , hurt , hurt", "the town ."]


def test_vector_is_the_first_token_of_the_last_layer_of_the_unit_alone(encoder_folder):
    """Section 3: hidden state of the first token in the last layer; released code: [CLS] unit [SEP], by itself."""
    encoder = load_encoder(str(encoder_folder))
    vectors = encoder.encode(TEXTS, batch_size=2)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = encoder.tokenizer(text, return_tensors="pt").input_ids
        assert encoder.tokenizer.convert_ids_to_tokens(ids[0].tolist())[0] == "[CLS]"
        with torch.no_grad():
            states = encoder.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        np.testing.assert_allclose(vector, states[0, 0].numpy(), atol=1e-5)


def test_d23_mean_pooling_is_the_mean_over_the_units_own_tokens(encoder_folder):
    """D23: special tokens count, padding does not."""
    encoder = load_encoder(str(encoder_folder), pooling="mean")
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        with torch.no_grad():
            states = encoder.model(**encoder.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=1e-5)
    assert encoder.fingerprint() != load_encoder(str(encoder_folder)).fingerprint()


def test_d6_the_encoder_stays_in_eval_mode_and_frozen(encoder_folder):
    """D6: train() on the encoder or on a module that holds it turns no dropout on; no weight asks for a gradient."""
    encoder = load_encoder(str(encoder_folder))
    before = encoder(TEXTS)
    holder = torch.nn.ModuleList([encoder]).train()
    encoder.train()
    assert not any(module.training for module in encoder.modules())
    assert torch.equal(holder[0](TEXTS), before)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in encoder.modules())  # there is some to turn on


def test_d9_random_encoder_tells_units_apart_by_their_words():
    """D9: nothing is downloaded, a seed is an encoder, and units are the nearer the more words they share."""
    words = "storm town hurt said river bridge school rain".split()
    one, again, other = (random_encoder([" ".join(words)], width=64, seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    base, near, far = one.encode(["storm town hurt said", "storm town hurt river", "river bridge school rain"])
    assert np.linalg.norm(base - near) < np.linalg.norm(base - far)


def test_long_units_are_cut(encoder_folder):
    """Released code: at 128 word pieces, [CLS] and [SEP] included."""
    encoder = load_encoder(str(encoder_folder))
    once, longer, other = encoder(["the " * 126, "the " * 140, "the " * 125 + "storm"])
    torch.testing.assert_close(once, longer)
    assert (once - other).abs().max() > 1e-4


def test_cached_vectors_are_computed_once(encoder_folder, tmp_path, monkeypatch):
    encoder = load_encoder(str(encoder_folder))
    first = cached_vectors(encoder, TEXTS, tmp_path)
    np.testing.assert_allclose(first, encoder.encode(TEXTS), atol=1e-6)
    monkeypatch.setattr(UnitEncoder, "encode", None)
    np.testing.assert_array_equal(cached_vectors(encoder, TEXTS, tmp_path), first)
    assert isinstance(first, np.memmap) and [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_cached_vectors_of_another_encoder_or_text_are_not_taken(encoder_folder, tmp_path):
    """The key changes with a single weight, with the pooling, and with any text or their order."""
    encoder = load_encoder(str(encoder_folder))
    first = np.array(cached_vectors(encoder, TEXTS, tmp_path))
    changed = cached_vectors(encoder, [*TEXTS[:-1], "the town burned ."], tmp_path)
    assert np.abs(changed[-1] - first[-1]).max() > 1e-3
    np.testing.assert_allclose(cached_vectors(encoder, TEXTS[::-1], tmp_path), first[::-1], atol=1e-5)
    assert encoder.fingerprint() != load_encoder(str(encoder_folder), pooling="mean").fingerprint()
    with torch.no_grad():
        encoder.model.get_input_embeddings().weight[:, 0] += 5.0
    assert np.abs(cached_vectors(encoder, TEXTS, tmp_path) - first).max() > 1e-3


def test_an_encoder_that_is_not_there_or_not_whole_is_named(encoder_folder, tmp_path):
    """Missing weights would be random, and a tokenizer that is missing would be one that knows no word."""
    with pytest.raises(ValueError, match="no encoder 'no/such-encoder'.*hf download"):
        load_encoder("no/such-encoder")
    weights = load_file(encoder_folder / "model.safetensors")
    name = next(name for name in weights if "query.weight" in name)
    for number, changed in enumerate(
        ({key: value for key, value in weights.items() if key != name}, weights | {name: weights[name] * float("nan")})
    ):
        folder = shutil.copytree(encoder_folder, tmp_path / str(number))
        save_file(changed, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match="has no encoder.layer.0.attention.self.query.weight, or numbers that are"):
            load_encoder(str(folder))
    bare = shutil.copytree(encoder_folder, tmp_path / "bare")
    for path in bare.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ValueError, match="bare' has no tokenizer"):
        load_encoder(str(bare))
