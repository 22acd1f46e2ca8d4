"""The adapter for a `transformers` BART: compressed memory and counts against the full-length gated
run.
"""

import functools
import itertools
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

from shared.data import Example, load  # noqa: E402
from shared.run import check  # noqa: E402

from ...config import learning_rate  # noqa: E402
from ...experiments import bart as command  # noqa: E402
from ...experiments.bart import GatedBart, GatedBartConfig, compress, counted_attention, load_run  # noqa: E402
from ...experiments.rules import DROPPED, attendable  # noqa: E402
from ..conftest import log  # noqa: E402

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
    gates, model = 0.2 + 0.8 * torch.rand(4, 9), GatedBart(bart).eval()
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
def test_algorithm1_logits_of_bart_equal_the_full_length_gated_run(bart, gated, source, attention):
    """Algorithm 1 on BART: ragged sources, one of which prunes nothing and one everything."""
    bart.set_attn_implementation(attention)
    targets = torch.randint(4, 31, (4, 6))
    encoding = gated.encode(source)
    memory = compress(encoding.states, encoding.gates[-1], attendable(encoding))
    # the dummy and the seven tokens of the source that keeps all
    assert memory.states.shape[:2] == (4, 8)
    with counted_attention(bart, memory.log_counts):
        states = BaseModelOutput(memory.states)
        pruned = bart(encoder_outputs=states, decoder_input_ids=targets).logits
    full = bart(decoder_input_ids=targets, **full_length(gated, source)).logits
    torch.testing.assert_close(pruned, full, atol=1e-5, rtol=0)


@torch.no_grad()
def test_algorithm1_generate_of_bart_equals_the_full_length_gated_run(bart, gated, source):
    pruned, _ = gated.eval().generate(source, **BEAMS)
    full = bart.generate(**full_length(gated, source), **BEAMS)
    torch.testing.assert_close(pruned.sequences_scores, full.sequences_scores, atol=1e-5, rtol=0)
    assert torch.equal(pruned.sequences, full.sequences)
    with pytest.raises(ValueError, match="unknown"):
        gated.generate(source, unknown=1)
    # none stays behind
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in bart.modules())


# Training


@torch.no_grad()
def test_eq11_gated_bart_reads_gated_states(bart, gated, source):
    """Open gates change nothing, given gates are those of the full-length run, no gate is the plain
    model.
    """
    targets, full = torch.randint(4, 31, (4, 6)), full_length(gated, source)
    plain = bart(
        input_ids=source, attention_mask=full["attention_mask"], decoder_input_ids=targets
    ).logits
    is_open = GatedBart(bart)
    torch.nn.init.constant_(is_open.l0drop[0].predictor.bias, 50.0)
    for model in (GatedBart(bart, gate=False), is_open):
        torch.testing.assert_close(model.eval()(source, targets)[0], plain, atol=1e-5, rtol=0)
    expected = bart(decoder_input_ids=targets, **full).logits
    torch.testing.assert_close(gated(source, targets)[0], expected, atol=1e-5, rtol=0)
    assert (expected - plain).abs().max() > 0.1


@torch.no_grad()
def test_d8_what_a_rule_drops_is_as_if_it_were_not_there(bart):
    """Two rules that differ by source; the decoder reads what is left of the encoder's states, and
    nothing else.
    """
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


@pytest.fixture
def folder(bart_folder, tmp_path):
    """The BART's folder, and data beside it."""
    rows = [
        {"source": " ".join(words), "target": words[0]} for words in itertools.permutations("abc")
    ]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def train(folder: Path, *more: str) -> None:
    given = [
        "--bart",
        folder / "bart",
        "--data",
        folder,
        "--save-every",
        3,
        "--max-source",
        30,
        "--max-target",
        30,
    ]
    command.main(["train", "--out", str(folder / "run"), *map(str, given), *more])


@pytest.mark.parametrize(
    "given", [dict(width=64), dict(units="char"), dict(l0drop="every"), dict(init="x")]
)
def test_flags_that_do_not_go_with_a_bart_are_refused(given):
    with pytest.raises(ValueError, match=f"--{next(iter(given))} .*does not go with a BART"):
        check(replace(GatedBartConfig(), **given))


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
    # BART's start
    assert list(item.target) == [0, 4, 2] and run.collate([item]).target_input.tolist() == [
        [2, 0, 4]
    ]
    assert not {1, 2} & set(run.tokenizer.encode("a <pad> b </s>").ids)
    command.main([*hint, "--split", "test", "--limit", "2"])
    (folder / "text.txt").write_text("a b c\n\nc b\n")
    command.main(
        ["predict", str(folder / "run"), str(folder / "text.txt"), "--show-pruned", "--beam", "1"]
    )
    lines = capsys.readouterr().out.splitlines()[-5:]
    assert lines[0].replace("[", "").replace("]", "") == "source: a b c" and lines[2] == ""


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


def test_outputs_keep_their_order_and_special_tokens_are_no_text(folder, monkeypatch):
    """Batches are made by length; what a source lost, and its output, stand in its own row."""
    train(folder, "--steps", "1")
    run = load_run(folder / "run")
    torch.nn.init.normal_(run.model.l0drop[0].predictor.weight, std=3)
    texts = ["a", "b c a b", "c b", "b b a c a"]
    examples = [Example(str(n), [text], [], []) for n, text in enumerate(texts)]
    # It has words for the tokens 4 to 6 alone.
    flags = {"min_new_tokens": 4, "suppress_tokens": list(range(7, 31))}
    together = list(command.predict(run, examples, batch_size=3, **flags))
    alone = [row for each in examples for row in command.predict(run, [each], **flags)]
    assert together == alone and [row["id"] for row in alone] == ["0", "1", "2", "3"]
    assert [row["pruned"][1] for row in alone] == [3, 6, 4, 7]  # <s> and </s> are encodings (D9)
    assert {row["source"].replace("[", "").replace("]", "") for row in alone} == set(texts)
    assert not any("<" in row["prediction"] for row in alone)
    assert len({row["prediction"] for row in alone}) > 1


def test_d20_holds_the_gates_of_a_bart_open_and_scales_its_rate(folder, monkeypatch):
    """No gate closes in two fifths of the steps, whatever the gates say; the rate goes by the
    BART's own width.
    """
    made, adam = [], torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: made.append(adam(*a, **k)) or made[-1])
    monkeypatch.setattr(command, "L0Drop", functools.partial(command.L0Drop, start=-5.0))
    train(folder, "--steps", "3", "--save-every", "1")
    assert [row["sparsity"] for row in log(folder / "run")] == [0, 0, 1]
    config = load_run(folder / "run").config
    assert (
        made[0].param_groups[0]["lr"] == pytest.approx(learning_rate(3, 16, config))
        and config.width != 16
    )
