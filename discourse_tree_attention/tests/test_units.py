"""Unit encoder and the arrays kept on disk."""

import contextlib
import io
import json
import shutil
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from .. import units
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


def test_d9_random_encoder_tells_units_apart_by_their_words(tmp_path):
    """D9: nothing is downloaded, a seed is an encoder, and units are the nearer the more words they share."""
    words = "storm town hurt said river bridge school rain".split()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        random_encoder([" ".join(words)], width=64, seed=seed).save(tmp_path / name)
    one, again, other = (load_encoder(str(tmp_path / name)) for name in "abc")
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    base, near, far = one.encode(["storm town hurt said", "storm town hurt river", "river bridge school rain"])
    assert np.linalg.norm(base - near) < np.linalg.norm(base - far)


def test_long_units_are_cut(encoder_folder):
    encoder = load_encoder(str(encoder_folder), max_tokens=6)
    once, longer = encoder(["a storm hit the town and more", "a storm hit the sea"])
    assert torch.equal(once, longer)  # [CLS] a storm hit the [SEP]


def test_cached_vectors_are_computed_once(encoder_folder, tmp_path, monkeypatch):
    encoder = load_encoder(str(encoder_folder))
    monkeypatch.setattr(units, "CHUNK", 2)  # they are written in parts
    first = cached_vectors(encoder, TEXTS, tmp_path)
    np.testing.assert_allclose(first, encoder.encode(TEXTS), atol=1e-6)
    monkeypatch.setattr(UnitEncoder, "encode", None)
    np.testing.assert_array_equal(cached_vectors(encoder, TEXTS, tmp_path), first)
    assert isinstance(first, np.memmap) and not first.flags.writeable
    (path,) = tmp_path.iterdir()
    assert path.suffix == ".npy" and path.stat().st_size - first.nbytes == 128  # numpy's header, and each part once


def test_cached_vectors_of_another_encoder_or_text_are_not_taken(encoder_folder, tmp_path):
    """The key changes with a single weight, with the cut, and with any text or their order."""
    encoder = load_encoder(str(encoder_folder))
    first = np.array(cached_vectors(encoder, TEXTS, tmp_path))
    changed = cached_vectors(encoder, [*TEXTS[:-1], "the town burned ."], tmp_path)
    assert np.abs(changed[-1] - first[-1]).max() > 1e-3
    np.testing.assert_allclose(cached_vectors(encoder, TEXTS[::-1], tmp_path), first[::-1], atol=1e-5)
    with torch.no_grad():
        encoder.model.get_input_embeddings().weight[:, 0] += 5.0
    assert np.abs(cached_vectors(encoder, TEXTS, tmp_path) - first).max() > 1e-3
    heads = load_encoder(str(encoder_folder))
    heads.model.config.num_attention_heads = 2
    assert heads.fingerprint() != load_encoder(str(encoder_folder)).fingerprint()
    again, shorter = load_encoder(str(encoder_folder)), load_encoder(str(encoder_folder), max_tokens=5)
    assert again.fingerprint() == load_encoder(str(encoder_folder)).fingerprint() != shorter.fingerprint()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_computation_that_fails_leaves_nothing(encoder_folder, tmp_path, monkeypatch, error):
    def stop(*_, **__):
        raise error

    encoder = load_encoder(str(encoder_folder))
    monkeypatch.setattr(UnitEncoder, "encode", stop)
    with pytest.raises(error if isinstance(error, type) else OSError):
        cached_vectors(encoder, TEXTS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_file_of_the_cache_is_named(encoder_folder, tmp_path):
    encoder = load_encoder(str(encoder_folder))
    cached_vectors(encoder, TEXTS, tmp_path)
    (path,) = tmp_path.iterdir()
    for content in (path.read_bytes()[:200], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{path.name} is cut off.*delete it"):
            cached_vectors(encoder, TEXTS, tmp_path)


def test_weights_that_would_be_random_or_are_nan_are_refused(encoder_folder, tmp_path):
    weights = load_file(encoder_folder / "model.safetensors")
    name = next(name for name in weights if "query.weight" in name)
    for changed, message in (
        ({key: value for key, value in weights.items() if key != name}, "lacks weights, which would be random"),
        (weights | {name: weights[name] * float("nan")}, "holds NaN"),
    ):
        shutil.copytree(encoder_folder, tmp_path, dirs_exist_ok=True)
        save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match=message):
            load_encoder(str(tmp_path))


def test_weights_that_the_configuration_has_no_layer_for_are_refused(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path, dirs_exist_ok=True)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"num_hidden_layers": content["num_hidden_layers"] - 1}))
    with pytest.raises(ValueError, match=r"has weights that its config.json has no layer for: .*layer\.\d"):
        load_encoder(str(tmp_path))


def test_a_unit_that_is_cut_is_told(encoder_folder):
    """By its pieces, [CLS] and [SEP] included, not by its characters."""
    encoder = load_encoder(str(encoder_folder), max_tokens=8)
    words = "the " * 30
    pieces = len(encoder.tokenizer(words).input_ids)
    assert pieces > 8 and encoder.cuts(["a", words]) and not encoder.cuts(["a", "the"])
    assert UnitEncoder(encoder.model, encoder.tokenizer, pieces - 1).cuts([words])
    assert not UnitEncoder(encoder.model, encoder.tokenizer, pieces).cuts([words])


def test_units_are_cut_where_the_encoders_positions_end(encoder_folder):
    encoder = load_encoder(str(encoder_folder))
    assert UnitEncoder(encoder.model, encoder.tokenizer, 10_000).max_tokens == 512


def test_an_encoder_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no encoder 'no/such-encoder'.*HF_HUB_OFFLINE=0 python -c"):
        load_encoder("no/such-encoder")
    with pytest.raises(ValueError, match="no encoder '/no/folder'"):
        load_encoder("/no/folder")


def test_a_tokenizer_that_is_not_there_is_an_error(encoder_folder, tmp_path):
    """Or transformers would make up one that knows no word."""
    shutil.copytree(encoder_folder, tmp_path / "bare")
    for path in (tmp_path / "bare").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ValueError, match="bare' has no tokenizer: its tokenizer.json is missing or empty"):
        load_encoder(str(tmp_path / "bare"))


@pytest.mark.parametrize(
    ("name", "wrong"), [("config.json", {"num_attention_heads": -1}), ("tokenizer_config.json", {"pad_token": None})]
)
def test_an_encoder_that_cannot_encode_is_named(encoder_folder, tmp_path, name, wrong):
    """It loads, and would fail in the work."""
    folder = shutil.copytree(encoder_folder, tmp_path / "folder")
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | wrong))
    with pytest.raises(ValueError, match="no encoder '.*folder' "):
        load_encoder(str(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_no_code_of_a_folder_runs_and_nothing_is_asked(encoder_folder, tmp_path, monkeypatch, name):
    """Without trust_remote_code=False transformers would ask, and a document "y" would say yes."""
    folder = shutil.copytree(encoder_folder, tmp_path / "folder")
    (folder / "own.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    config = json.loads((folder / name).read_text())
    own = {"AutoModel": "own.Model", "AutoConfig": "own.Config", "AutoTokenizer": ["own.Tokenizer", "own.Tokenizer"]}
    (folder / name).write_text(json.dumps(config | {"auto_map": own, "model_type": "unknown"}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    stdin = io.StringIO("y\ny\n")
    monkeypatch.setattr(sys, "stdin", stdin)
    with contextlib.suppress(ValueError):
        load_encoder(str(folder))
    assert not (tmp_path / "ran").exists() and stdin.read() == "y\ny\n"
