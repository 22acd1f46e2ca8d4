"""Checkpoints of the public code, in files of their layout that are made here."""

import sys
from argparse import Namespace
from collections import OrderedDict, defaultdict
from types import ModuleType

import pytest
import torch
from transformers import BertConfig, BertModel

pytest.importorskip("shared")

from ...bertsum.bert_text import Item as BertItem
from ...bertsum.bert_text import collate as bert_collate
from ...bertsum.bert_text import make_tokenizer
from ...experiments.convert import convert, load_safely, rename
from ...experiments.convert import main as convert_main
from ...loading import load_run
from ...text import UNK, collate
from ...train import main
from ..conftest import encode
from ..reference import Pointer

WORDS = [f"word{n}" for n in range(15)]
V, E, H, D, FF = 19, 6, 5, 16, 24


def linear(name: str, out: int, width: int = 0) -> dict:
    """Names and random numbers of a linear map or, without width, of a norm."""
    return {f"{name}.weight": torch.randn(out, width) if width else torch.rand(out), f"{name}.bias": torch.randn(out)}


def lstm(width: int, *ways: str) -> dict:
    shapes = {"weight_ih": (4 * H, width), "weight_hh": (4 * H, H), "bias_ih": (4 * H,), "bias_hh": (4 * H,)}
    return {f"lstm.{name}_l0{way}": torch.randn(shape) for name, shape in shapes.items() for way in ways}


def presumm_state(bert: BertModel) -> OrderedDict:
    """The names of PreSumm's AbsSummarizer with two decoder layers."""
    words = torch.randn(bert.config.vocab_size, D)
    state = {f"bert.model.{name}": tensor for name, tensor in bert.state_dict().items()}
    state |= {"decoder.embeddings.weight": words, "decoder.pos_emb.pe": torch.ones(1, 50, D)}
    for layer in ("decoder.transformer_layers.0", "decoder.transformer_layers.1"):
        for part in ("self_attn", "context_attn"):
            for name in ("linear_keys", "linear_values", "linear_query", "final_linear"):
                state |= linear(f"{layer}.{part}.{name}", D, D)
        state |= linear(f"{layer}.feed_forward.w_1", FF, D) | linear(f"{layer}.feed_forward.w_2", D, FF)
        for name in ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"):
            state |= linear(f"{layer}.{name}", D)
        state[f"{layer}.mask"] = torch.ones(1, 9, 9)
    state |= linear("decoder.layer_norm", D) | {
        "generator.0.weight": words,
        "generator.0.bias": torch.randn(len(words)),
    }
    return OrderedDict(state)


@pytest.fixture
def pointer_file(tmp_path):
    words, wide = {"embedding.weight": torch.randn(V, E)}, 2 * H
    attention = linear("attention_network.decode_proj", wide, wide)
    attention |= {
        "attention_network.W_c.weight": torch.randn(wide, 1),
        "attention_network.v.weight": torch.randn(1, wide),
    }
    decoder = linear("x_context", E, wide + E) | linear("p_gen_linear", 1, 2 * wide + E) | linear("out1", H, wide + H)
    state = {
        "encoder_state_dict": words | lstm(E, "", "_reverse") | {"W_h.weight": torch.randn(wide, wide)},
        "reduce_state_dict": linear("reduce_h", H, wide) | linear("reduce_c", H, wide),
        "decoder_state_dict": words | attention | decoder | linear("out2", V, H) | lstm(E, ""),
    }
    optimizer = torch.optim.Adagrad([torch.nn.Parameter(torch.ones(1))]).state_dict()
    torch.save({"iter": 9, **state, "optimizer": optimizer, "current_loss": 3.2}, tmp_path / "model_9")
    (tmp_path / "vocab").write_text("".join(f"{word} {99 - n}\n" for n, word in enumerate([*WORDS, "rare", "b a d"])))
    return tmp_path / "model_9"


def test_a_pointer_summarizer_computes_with_its_own_numbers(pointer_file):
    """Weights by name, words in the order of its file `vocab`; <unk> and <pad> change places."""
    theirs = torch.load(pointer_file, weights_only=True)
    out = pointer_file.with_name("run")
    convert("pointer_summarizer", pointer_file, out)
    run = load_run(out)
    assert run.tokenizer.known[4:] == WORDS and run.config.coverage and run.config.hidden == 5
    table = theirs["encoder_state_dict"]["embedding.weight"]
    assert torch.equal(run.model.encoder.embedding.weight[[1, 0, 2, 3, 4]], table[:5])
    assert torch.equal(run.model.decoder.output.bias[[1, 0]], theirs["decoder_state_dict"]["out2.bias"][:2])
    for ours, name in (("score", "attention_network.v"), ("coverage", "attention_network.W_c"), ("merge", "x_context")):
        assert torch.equal(getattr(run.model.decoder, ours).weight, theirs["decoder_state_dict"][f"{name}.weight"])
    [item] = encode([("word3 zorn word7", "zorn word3")], run.tokenizer, 9, 9)
    assert item.source[1] == UNK
    loss = Pointer(run.model).loss(item, 20, 1.0)
    assert run.model(collate([item])).item() == pytest.approx(loss, rel=1e-4)


@pytest.fixture
def presumm_file(tmp_path, monkeypatch):
    """Flags and optimisers are objects of PreSumm's own classes, which are not there when it is read."""
    tokenizer = make_tokenizer(["the storm hit the town"], 30, 64)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    bert = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes))
    for part in (tokenizer, bert.config):
        part.save_pretrained(tmp_path / "bert")
    optimizers = ModuleType("models.optimizers")
    optimizers.Optimizer = type("Optimizer", (), {"__module__": "models.optimizers"})
    monkeypatch.setitem(sys.modules, "models", ModuleType("models"))
    monkeypatch.setitem(sys.modules, "models.optimizers", optimizers)
    optim = optimizers.Optimizer()
    optim.optimizer, optim.seen = torch.optim.Adam(bert.parameters()), defaultdict(dict, {1: {"a": torch.ones(1)}})
    content = {"model": presumm_state(bert), "opt": Namespace(task="abs"), "optims": [optim, optim]}
    torch.save(content, tmp_path / "model_step_148000.pt", _use_new_zipfile_serialization=False)  # as torch 1.1 did
    monkeypatch.undo()
    return tmp_path / "model_step_148000.pt", content["model"], str(tmp_path / "bert")


def test_presumms_summarizer_goes_on_with_diminishing_attention(presumm_file, tmp_path, capsys):
    """The paper's second experiment: convert, then --init with flags on top; every weight arrives."""
    file, theirs, encoder = presumm_file
    flags = ["--encoder", encoder, "--data", "toy:count=4", "--diminishing", "dydim", "--steps", "1", "--warmup", "1"]
    small = ["--max-source", "40", "--batch-size", "2", "--accumulate", "1", "--encoder-learning-rate", "0"]
    convert_main(["presumm", str(file), "--out", str(tmp_path / "theirs"), "--encoder", encoder])
    assert "and nothing else of it" in capsys.readouterr().out
    main(["--out", str(tmp_path / "run"), "--init", str(tmp_path / "theirs"), *flags, *small, "--learning-rate", "0"])
    run = load_run(tmp_path / "run")
    inner = run.model.layers[1].feed_forward.inner
    assert (run.config.diminishing, run.config.beam, inner.out_features) == ("dydim", 5, 24)
    state = run.model.state_dict()
    mapped = rename(theirs, "presumm")
    assert mapped.keys() == state.keys() and all(torch.equal(mapped[name], state[name]) for name in state)
    assert torch.equal(state["layers.1.cross_attention.key.weight"],
                       theirs["decoder.transformer_layers.1.context_attn.linear_keys.weight"])  # fmt: skip
    item = BertItem([2, 9, 3], [0, 0, 0], [0], [False], [5, 9, 6], False)
    assert run.model(bert_collate([item])).isfinite().all()


class Shell:
    def __reduce__(self):
        return print, ("code ran",)


def test_code_in_a_checkpoint_does_not_run(tmp_path, capsys):
    torch.save({"model": {}, "opt": Shell()}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match="bad.pt is cut off, or holds more than weights") as error:
        load_safely(tmp_path / "bad.pt")
    assert "code ran" not in capsys.readouterr().out
    assert "weights_only" not in str(error.value)  # torch's advice to trust the file
    for content in (b"", b"...\n", b"a\0b"):  # no pickle
        (tmp_path / "bad.pt").write_bytes(content)
        with pytest.raises(ValueError, match="bad.pt is cut off, or holds more than weights: ."):
            load_safely(tmp_path / "bad.pt")


def test_foreign_files_are_one_line(pointer_file, capsys):
    (pointer_file.parent / "vocab").write_text("one 1\n")
    torch.save({"weights": torch.ones(2)}, pointer_file.with_name("other.pt"))
    torch.save(torch.ones(2), pointer_file.with_name("tensor.pt"))
    cases = [("other.pt", "it lacks 'encoder_state_dict'"), ("tensor.pt", "is not what pointer_summarizer saves")]
    for name, message in (*cases, (pointer_file.name, "has 1 words"), (pointer_file.name, "vocab is not UTF-8")):
        if "UTF-8" in message:
            (pointer_file.parent / "vocab").write_bytes(b"caf\xe9 1\n")
        with pytest.raises(SystemExit):
            path = pointer_file.with_name(name)
            convert_main(["pointer_summarizer", str(path), "--out", str(path.with_name("run"))])
        assert message in capsys.readouterr().err and not list(pointer_file.parent.glob("run*"))
