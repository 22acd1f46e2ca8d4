"""The adapter for BART: compressed memory and counts against the full-length gated run."""

import functools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("transformers")

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from shared.data import load
from shared.run import check

from ... import predict as core
from ...config import learning_rate
from ...experiments import bart as command
from ...experiments.bart import GatedBart, GatedBartConfig, load_run
from ...experiments.rules import DROPPED, attendable
from ..conftest import log

BEAMS = dict(
    num_beams=4,
    do_sample=False,
    min_new_tokens=3,
    max_new_tokens=8,
    return_dict_in_generate=True,
    output_scores=True,
)


@pytest.fixture
def source() -> Tensor:
    """Four sources of 9, 7, 9 and 5 tokens."""
    tokens = torch.randint(4, 31, (4, 9), generator=torch.Generator().manual_seed(2))
    return tokens.where(torch.arange(9) < torch.tensor([9, 7, 9, 5]).unsqueeze(-1), 1)


@pytest.fixture
def gated(bart) -> GatedBart:
    """With given gates: some closed, none, all, some."""
    model = GatedBart(bart).eval()
    gates = 0.2 + 0.8 * torch.rand(4, 9)
    gates[0, [0, 3, 4, 8]] = 0
    gates[2] = 0
    gates[3, [1, 2]] = 0
    model.l0drop[0].forward = lambda states: (gates.unsqueeze(-1) * states, gates, gates)
    return model


def full_length(gated: GatedBart, source: Tensor) -> dict:
    """All that plain BART needs: all states, times their gates, and the mask."""
    keep = (source != 1).long()
    states = gated.bart.get_encoder()(input_ids=source, attention_mask=keep).last_hidden_state
    return {"encoder_outputs": BaseModelOutput(gated.l0drop[0](states)[0]), "attention_mask": keep}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_algorithm1_generate_of_bart_equals_the_full_length_gated_run(
    bart, gated, source, attention
):
    """Ragged sources, one of which prunes nothing and one everything."""
    bart.set_attn_implementation(attention)
    rows = []
    bart.get_decoder().register_forward_pre_hook(
        lambda _, __, keywords: rows.append(keywords["encoder_hidden_states"].size(1)),
        with_kwargs=True,
    )
    pruned, _ = gated.generate(source, **BEAMS)
    assert set(rows) == {8}  # the dummy and the seven tokens of the source that keeps all
    full = bart.generate(**full_length(gated, source), **BEAMS)
    torch.testing.assert_close(pruned.sequences_scores, full.sequences_scores, atol=1e-5, rtol=0)
    assert torch.equal(pruned.sequences, full.sequences)
    with pytest.raises(ValueError, match="unknown"):
        gated.generate(source, unknown=1)
    assert len(bart.get_decoder()._forward_pre_hooks) == 1  # that of this test


# Training


@torch.no_grad()
def test_eq11_gated_bart_reads_gated_states(bart, gated, source):
    """Open gates change nothing, given ones what they do at full length; no gate: plain BART."""
    targets = torch.randint(4, 31, (4, 6))
    full = full_length(gated, source)
    keep = full["attention_mask"]
    plain = bart(input_ids=source, attention_mask=keep, decoder_input_ids=targets).logits
    is_open = GatedBart(bart)
    torch.nn.init.constant_(is_open.l0drop[0].predictor.bias, 50.0)
    for model in (GatedBart(bart, gate=False), is_open):
        torch.testing.assert_close(model.eval()(source, targets)[0], plain, atol=1e-5, rtol=0)
    expected = bart(decoder_input_ids=targets, **full).logits
    torch.testing.assert_close(gated(source, targets)[0], expected, atol=1e-5, rtol=0)
    assert (expected - plain).abs().max() > 0.1


@torch.no_grad()
def test_d8_what_a_rule_drops_is_as_if_it_were_not_there(bart):
    """The decoder reads what a rule leaves of the encoder's states, and nothing else."""
    model = GatedBart(bart, gate=False).eval()
    source, target = torch.randint(4, 31, (2, 9)), torch.randint(4, 31, (2, 5))
    rule = torch.tensor([[True, False] * 4 + [True], [True, True, False] * 3])
    ruled = source + DROPPED * ~rule
    logits, encoding = model(ruled, target)
    output = model.generate(ruled, num_beams=2, max_new_tokens=6)[0]
    assert attendable(encoding).sum(1).max() == 6
    for row, keep in enumerate(rule):
        alone = BaseModelOutput(encoding.states[row : row + 1, keep])
        expected = bart(encoder_outputs=alone, decoder_input_ids=target[row : row + 1]).logits
        torch.testing.assert_close(logits[row : row + 1], expected)
        tokens = bart.generate(encoder_outputs=alone, num_beams=2, max_new_tokens=6)[0].tolist()
        assert [t for t in output[row].tolist() if t != 1] == [t for t in tokens if t != 1]
    assert (logits - model(source, target)[0]).abs().max() > 1e-2


def test_a_gate_has_its_barts_dtype_and_training_mode_is_refused(bart, source):
    model = GatedBart(bart.bfloat16())
    assert model.eval().generate(source, max_new_tokens=3)[1].states.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="training mode"):
        model.train().generate(source)


# Runs


def train(folder: Path, *more: str) -> None:
    flags = f"--bart {folder}/bart --data {folder} --save-every 3 --max-source 30 --max-target 30"
    command.main(["train", "--out", str(folder / "run"), *flags.split(), *more])


def test_flags_that_do_not_go_with_a_bart_are_refused():
    for name, value in dict(width=64, units="char", l0drop="every", init="x").items():
        with pytest.raises(ValueError, match=f"--{name} .*does not go with a BART"):
            check(replace(GatedBartConfig(), **{name: value}))


@pytest.mark.parametrize(
    "more", [["--l0-weight", "3"], ["--l0drop", "none", "--rule", "freq"]], ids=["gates", "rule"]
)
def test_d22_a_pretrained_model_goes_the_whole_way(folder, more, capsys):
    """D22: trained, resumed, read without the BART; a token that stands in a text is text."""
    train(folder, *more, "--steps", "3")
    said = capsys.readouterr().out
    hint = re.search(r"next: python -m \S+\.bart (predict \S+) FILE.txt", said)[1].split()
    train(folder, *more, "--steps", "6", "--resume")
    shutil.rmtree(folder / "bart")  # a run is whole without it
    run = load_run(folder / "run")
    assert bool(run.model.dropped) == ("freq" in more)
    item = run.encode(load(str(folder), "test"))[0]
    assert [token % DROPPED for token in item.source] == [0, 4, 5, 6, 2]  # <s> a b c </s>
    assert list(item.target) == [0, 4, 2]
    assert run.collate([item]).target_input.tolist() == [[2, 0, 4]]  # BART's start
    assert not {1, 2} & set(run.tokenizer.encode("a <pad> b </s>").ids)
    command.main([*hint, "--split", "test", "--limit", "2"])
    (folder / "text.txt").write_text("a b c\n\nc b\n")
    command.main([*hint, str(folder / "text.txt"), "--show-pruned", "--beam", "1"])
    lines = capsys.readouterr().out.splitlines()[-5:]
    assert lines[0].replace("[", "").replace("]", "") == "source: a b c" and lines[2] == ""
    # Special tokens are no text; it has words for the tokens 4 to 6 alone.
    [text], _ = run.decode([item], min_new_tokens=4, suppress_tokens=list(range(7, 31)))
    assert "<" not in text
    [row] = core.predict(run, load(str(folder), "test", 1), max_new_tokens=3)
    assert row["pruned"][1] == 5  # <s> and </s> are encodings (D9)


def test_a_run_decodes_by_its_barts_own_settings_and_flags_win(folder, monkeypatch, capsys):
    """Beams and lengths are the BART's unless flags are given; a least length yields to one."""
    train(folder, "--steps", "1")
    path = folder / "run/model/generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_beams": 3, "min_length": 7}))
    seen, generate = [], GatedBart.generate

    def spy(self, source):
        settings = self.bart.generation_config
        seen.append((settings.num_beams, settings.max_length, settings.min_length))
        return generate(self, source)

    monkeypatch.setattr(GatedBart, "generate", spy)
    for more in ([], ["--beam", "4", "--max-length", "5"]):
        command.main(["predict", str(folder / "run"), "--data", str(folder), *more])
    assert seen == [(3, 12, 7), (4, 5, 5)]
    assert capsys.readouterr().err.count("min_length 7 is lowered to 5") == 1


def test_d20_holds_the_gates_of_a_bart_open_and_scales_its_rate(folder, monkeypatch):
    """No gate closes in two fifths of the steps; the rate goes by the BART's own width."""
    made, adam = [], torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: made.append(adam(*a, **k)) or made[-1])
    monkeypatch.setattr(command, "L0Drop", functools.partial(command.L0Drop, start=-5.0))
    train(folder, "--steps", "3", "--save-every", "1")
    assert [row["sparsity"] for row in log(folder / "run")] == [0, 0, 1]
    config = load_run(folder / "run").config
    assert config.width != 16
    assert made[0].param_groups[0]["lr"] == pytest.approx(learning_rate(3, 16, config))
