"""The adapter for a `transformers` BART: compressed memory and counts against the full-length gated run."""

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("transformers")

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from shared.data import load  # noqa: E402
from shared.run import check, update  # noqa: E402

from ... import search  # noqa: E402
from ...config import learning_rate  # noqa: E402
from ...experiments import bart as command  # noqa: E402
from ...experiments.bart import (  # noqa: E402
    GatedBart,
    GatedBartConfig,
    counted_attention,
    generate_from,
    load_pretrained,
    load_run,
)
from ...gates import Memory, open_probability  # noqa: E402
from ...model import objective  # noqa: E402
from ...search import beam_search  # noqa: E402
from .. import reference  # noqa: E402

BEAMS = dict(
    num_beams=4, do_sample=False, min_new_tokens=3, max_new_tokens=8, return_dict_in_generate=True, output_scores=True
)


@pytest.fixture
def bart_tokenizer() -> PreTrainedTokenizerFast:
    """<s> before a text and </s> after it, as BART has them."""
    words = {word: index for index, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c"])}
    tokenizer = Tokenizer(WordLevel(words, "<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    special = dict(bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


class FixedGates(nn.Module):
    """An L0Drop whose gates are given."""

    def __init__(self, gates: Tensor):
        super().__init__()
        self.gates = gates

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.gates.unsqueeze(-1) * states, self.gates, self.gates


@pytest.fixture(params=["sdpa", "eager"])
def bart(request) -> BartForConditionalGeneration:
    """A small BART whose attention is sharp and whose biases, so the dummy's key and value, are not zero."""
    torch.manual_seed(1)
    config = BartConfig(
        vocab_size=31, d_model=16, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=32, init_std=0.4,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    model.set_attn_implementation(request.param)
    return model


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, nn.Module]:
    """Four sources of 9, 7, 9 and 5 tokens: some gates closed, none, all, some."""
    torch.manual_seed(2)
    attention_mask = (torch.arange(9) < torch.tensor([9, 7, 9, 5]).unsqueeze(-1)).long()
    input_ids = torch.randint(4, 31, (4, 9)).where(attention_mask.bool(), 1)
    gates = 0.2 + 0.8 * torch.rand(4, 9)
    gates[0, [0, 3, 4, 8]] = 0
    gates[2] = 0
    gates[3, [1, 2]] = 0
    return input_ids, attention_mask, FixedGates(gates).eval()


def gated_states(bart, l0drop, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
    """Full-length encoder outputs, times their gates: all that plain BART needs.  `generate` changes what it is given,
    so each call gets its own."""
    states = bart.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    return BaseModelOutput(l0drop(states)[0])


def prune(bart, l0drop, input_ids: Tensor) -> Memory:
    """Algorithm 1, lines 1-4."""
    model = GatedBart(bart).eval()
    model.l0drop[0] = l0drop
    return model.make_memory(model.encode(input_ids))


def generate_gated(bart, l0drop, input_ids: Tensor, attention_mask: Tensor, **generation):
    """The slow reference: plain BART over the full-length gated states."""
    states = gated_states(bart, l0drop, input_ids, attention_mask)
    return bart.generate(encoder_outputs=states, attention_mask=attention_mask, **generation)


@torch.no_grad()
def test_algorithm1_logits_of_bart_equal_the_full_length_gated_run(bart, batch):
    """Algorithm 1 on BART: ragged sources, one of which prunes nothing and one everything."""
    input_ids, attention_mask, l0drop = batch
    targets = torch.randint(4, 31, (4, 6))
    memory = prune(bart, l0drop, input_ids)
    assert memory.states.shape[:2] == (4, 8)  # the dummy and the seven tokens of the source that keeps all
    with counted_attention(bart, memory.log_counts):
        states = BaseModelOutput(memory.states)
        pruned = bart(encoder_outputs=states, decoder_input_ids=targets).logits
    states = gated_states(bart, l0drop, input_ids, attention_mask)
    full = bart(encoder_outputs=states, attention_mask=attention_mask, decoder_input_ids=targets).logits
    torch.testing.assert_close(pruned, full, atol=1e-5, rtol=0)


@torch.no_grad()
def test_algorithm1_generate_of_bart_equals_the_full_length_gated_run(bart, batch):
    pruned = generate_from(bart, prune(bart, batch[2], batch[0]), **BEAMS)
    full = generate_gated(bart, batch[2], *batch[:2], **BEAMS)
    torch.testing.assert_close(pruned.sequences_scores, full.sequences_scores, atol=1e-5, rtol=0)
    assert torch.equal(pruned.sequences, full.sequences)


@torch.no_grad()
def test_not_forgetting_the_counts_of_bart(bart, batch):
    """A dummy that counts once changes the scores of the sources that pruned, and no others."""
    memory = prune(bart, batch[2], batch[0])
    attend = memory.log_counts.isfinite().long()
    forgotten = bart.generate(encoder_outputs=BaseModelOutput(memory.states), attention_mask=attend, **BEAMS)
    full = generate_gated(bart, batch[2], *batch[:2], **BEAMS)
    change = (forgotten.sequences_scores - full.sequences_scores).abs()
    assert (change[[0, 3]] > 1e-3).all()
    assert change[1] < 1e-5  # nothing pruned
    assert change[2] < 1e-5  # nothing but the dummy: whatever it counts, all weight is on it


@torch.no_grad()
def test_bart_is_the_same_afterwards(bart, batch):
    """No hook and no changed weight stays behind, not even when the `with` is left by an error."""
    before = {name: tensor.clone() for name, tensor in bart.state_dict().items()}
    plain = bart.generate(input_ids=batch[0], attention_mask=batch[1], **BEAMS)
    generate_from(bart, prune(bart, batch[2], batch[0]), **BEAMS)
    with pytest.raises(RuntimeError, match="interrupted"):
        with counted_attention(bart, torch.zeros(4, 9)):
            raise RuntimeError("interrupted")
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in bart.modules())
    after = bart.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    again = bart.generate(input_ids=batch[0], attention_mask=batch[1], **BEAMS)
    assert torch.equal(again.sequences, plain.sequences)
    assert torch.equal(again.sequences_scores, plain.sequences_scores)


# Training


@torch.no_grad()
def test_eq11_gated_bart_reads_gated_states(bart, batch):
    """Open gates change nothing, given gates are those of the full-length run, no gate is the plain model."""
    source, targets = batch[0], torch.randint(4, 31, (4, 6))
    plain = bart(input_ids=source, attention_mask=batch[1], decoder_input_ids=targets).logits
    for model in (GatedBart(bart, gate=False), GatedBart(bart, start=50.0)):
        torch.testing.assert_close(model.eval()(source, targets)[0], plain, atol=1e-5, rtol=0)
    model = GatedBart(bart).eval()
    model.l0drop[0] = batch[2]
    states = gated_states(bart, batch[2], *batch[:2])
    gated = bart(encoder_outputs=states, attention_mask=batch[1], decoder_input_ids=targets).logits
    torch.testing.assert_close(model(source, targets)[0], gated, atol=1e-5, rtol=0)
    assert (gated - plain).abs().max() > 0.1
    pruned, full = (model.generate(source, None, prune, beam=3, max_new_tokens=8) for prune in (True, False))
    assert torch.equal(pruned.hypotheses.tokens, full.hypotheses.tokens)
    assert (pruned.memory_length, full.memory_length) == (8, 9)


def test_eq12_trains_the_gates_of_bart_and_the_rest(bart, batch):
    model = GatedBart(bart, start=1.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    source, target = batch[0], torch.randint(4, 31, (4, 6))
    for _ in range(5):
        logits, encoding = model.train()(source, torch.cat([target[:, :1], target[:, :-1]], 1))
        objective(logits, target, encoding, l0_weight=5.0).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(before[name], tensor)}
    assert {"l0drop.0.predictor.weight", "l0drop.0.predictor.bias"} < changed
    probability = open_probability(model.eval().encode(source).log_alpha[0])[encoding.keep]
    assert probability.mean() < open_probability(torch.tensor(1.0)) - 0.1


@pytest.fixture
def folder(bart, bart_tokenizer, tmp_path):
    """A folder of transformers with the BART, which writes at most 12 tokens, and data beside it."""
    bart.generation_config.update(max_length=12, num_beams=2)
    bart.save_pretrained(tmp_path / "bart")
    bart_tokenizer.save_pretrained(tmp_path / "bart")
    rows = [{"source": " ".join(words), "target": words[0]} for words in itertools.permutations("abc")]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def flags(folder: Path, *more: str) -> list[str]:
    given = ["--bart", folder / "bart", "--data", folder, "--save-every", 3, "--max-source", 30, "--max-target", 30]
    return ["train", "--out", str(folder / "run"), *map(str, given), *more]


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_load_pretrained_keeps_what_stands_before_a_text(bart, folder, bart_tokenizer):
    """And a token that stands in a text is text; a model without a length writes --max-target tokens."""
    config = GatedBartConfig(bart=str(folder / "bart"), max_source=30, max_target=9)
    loaded, tokenizer = load_pretrained(config)
    assert tokenizer.encode("a b").ids == bart_tokenizer("a b").input_ids[:-1]
    assert not {0, 1, 2} & set(tokenizer.encode("a </s> <pad> b").ids[1:])
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in bart.state_dict().items())
    assert loaded.generation_config.max_length == 12  # its own
    with pytest.raises(ValueError, match="reads 32 tokens, not 33"):
        load_pretrained(update(config, max_source=33))
    bart.generation_config.max_length = None
    bart.save_pretrained(folder / "bart")
    assert load_pretrained(config)[0].generation_config.max_length == 9


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
@pytest.mark.parametrize("damage", ["missing", "NaN", "float16"])
def test_load_pretrained_fills_no_weight_at_random_and_computes_in_float32(bart, folder, damage):
    config, weights = GatedBartConfig(bart=str(folder / "bart"), max_source=30, max_target=9), bart.state_dict()
    name = "model.decoder.layers.1.fc1.weight"
    if damage == "float16":
        bart.half().save_pretrained(folder / "bart")
        assert {tensor.dtype for tensor in load_pretrained(config)[0].parameters()} == {torch.float32}
        return
    weights |= {name: weights[name] / 0}
    if damage == "missing":
        del weights[name]
    bart.save_pretrained(folder / "bart", state_dict=weights)
    with pytest.raises(ValueError, match=name):
        load_pretrained(config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(width=64), "--width does not go with a BART"),
        (dict(units="char"), "--units does not go with a BART"),
        (dict(mask_closed_in_training=True), "--mask-closed-in-training does not go with a BART"),
        (dict(l0drop="every"), "--l0drop every does not go with a BART"),
        (dict(rule="freq"), "--rule freq takes the place of the gates"),
    ],
)
def test_flags_that_do_not_go_with_a_bart_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check(update(GatedBartConfig(), **given))


def test_d8_what_a_rule_drops_is_as_if_it_were_not_there(bart):
    """Two rules that differ by source; the decoder reads what is left of the encoder's states, and nothing else."""
    model = GatedBart(bart, gate=False).eval()
    source, target = torch.randint(4, 31, (2, 9)), torch.randint(4, 31, (2, 5))
    rule = torch.tensor([[True, False] * 4 + [True], [True, True, False] * 3])
    with torch.no_grad():
        logits, encoding = model(source, target, rule)
        outputs = [model.generate(source, rule, prune, beam=2, max_new_tokens=6) for prune in (True, False)]
        for row, keep in enumerate(rule):
            alone = BaseModelOutput(encoding.states[row : row + 1, keep])
            expected = bart(encoder_outputs=alone, decoder_input_ids=target[row : row + 1]).logits
            torch.testing.assert_close(logits[row : row + 1], expected)
            tokens = bart.generate(encoder_outputs=alone, num_beams=2, max_new_tokens=6)[0].tolist()
            for output in outputs:
                found = output.hypotheses.tokens[row].tolist()
                assert [t for t in found if t != 1] == [t for t in tokens if t != 1]
    assert [output.memory_length for output in outputs] == [6, 9]
    with torch.no_grad():
        assert (logits - model(source, target)[0]).abs().max() > 1e-2


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
@pytest.mark.parametrize("more", [["--l0-weight", "3"], ["--l0drop", "none", "--rule", "freq"]], ids=["gates", "rule"])
def test_d22_a_pretrained_model_goes_the_whole_way(folder, more, capsys):
    """D22: trained, resumed without the BART's own folder, read; Algorithm 1 and the dense memory write the same."""
    command.main(flags(folder, *more, "--steps", "3"))
    assert "experiments.bart predict" in capsys.readouterr().out
    shutil.rmtree(folder / "bart")  # a run is whole without it
    command.main(flags(folder, *more, "--steps", "6", "--resume"))
    run = load_run(folder / "run")
    assert bool(run.rule and run.rule.dropped) == ("freq" in more)
    item = run.encode(load(str(folder), "test"))[0]
    assert list(item.source) == [0, 4, 5, 6, 2] and list(item.target) == [0, 4, 2]  # <s> a b c </s>
    assert run.collate([item]).target_input.tolist() == [[2, 0, 4]]  # begins with BART's own start
    assert 1 not in run.tokenizer.encode("a <pad> b").ids
    outputs = []
    for name in ("pruned", "dense"):
        out = str(folder / f"{name}.jsonl")
        command.main(
            ["predict", str(folder / "run"), "--data", str(folder), "--out", out, *["--dense"] * (name == "dense")]
        )
        outputs.append([json.loads(line)["prediction"] for line in open(out)])
    assert outputs[0] == outputs[1]
    (folder / "text.txt").write_text("a b c\n\nc b\n")
    capsys.readouterr()
    command.main(["predict", str(folder / "run"), str(folder / "text.txt"), "--show-pruned", "--beam", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].replace("[", "").replace("]", "") == "source: a b c" and lines[2] == ""


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_a_run_decodes_by_its_barts_own_settings_and_flags_win(folder, monkeypatch):
    """Beams are the BART's unless --beam is given; several sequences a source would be another document's output."""
    command.main(flags(folder, "--steps", "1"))
    path = folder / "run/model/generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_beams": 3, "num_return_sequences": 2}))
    seen, generate = [], command.generate_from

    def spy(bart, memory, **given):
        own = bart.generation_config
        seen.append((given.get("num_beams", own.num_beams), given.get("max_length"), own.num_return_sequences))
        return generate(bart, memory, **given)

    monkeypatch.setattr(command, "generate_from", spy)
    for more in ([], ["--beam", "2", "--max-length", "5"]):
        command.main(["predict", str(folder / "run"), "--data", str(folder), *more])
    assert [(beams, length) for beams, length, _ in seen] == [(3, None), (2, 5)]
    assert all(sequences in (None, 1) for *_, sequences in seen)


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_the_rate_is_scaled_by_the_models_own_width(folder, monkeypatch):
    """Not by --width, which a BART does not have."""
    rates, adam = [], torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: rates.append(adam(*a, **k)) or rates[-1])
    command.main(flags(folder, "--steps", "1", "--warmup", "5"))
    config = load_run(folder / "run").config
    assert rates[0].param_groups[0]["lr"] == pytest.approx(learning_rate(1, 16, config)) and config.model.width != 16


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_d20_holds_the_gates_of_a_bart_open(folder):
    """Its first two fifths of the steps prune nothing, whatever the gates say."""
    command.main(flags(folder, "--steps", "3", "--save-every", "1", "--gate-start", "-5"))
    rows = [json.loads(line) for line in open(folder / "run/log.jsonl")]
    assert [row["sparsity"] for row in rows[1:]] == [0, 0, 1]


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_a_run_fine_tunes_another(folder):
    """The control's weights, new gates; the update's number goes on."""
    command.main(flags(folder, "--steps", "1", "--l0drop", "none"))
    again = ["train", "--init", str(folder / "run"), "--out", str(folder / "l0"), "--l0drop", "output", "--steps", "2"]
    command.main([*again, "--learning-rate", "0"])
    base, run = load_run(folder / "run"), load_run(folder / "l0")
    assert run.first_step == 1 and len(run.model.l0drop) == 1 and run.tokenizer.to_str() == base.tokenizer.to_str()
    assert all(torch.equal(tensor, run.model.state_dict()[name]) for name, tensor in base.model.state_dict().items())


class Prefixes:
    """The past of `SearchedBart`: all tokens so far."""

    tokens = None

    def reorder(self, rows: Tensor) -> None:
        self.tokens = self.tokens[rows]


class SearchedBart:
    """A BART as `beam_search` wants a model; without a cache. `memory` is one source (1, S)."""

    config = SimpleNamespace(positions=32)

    def __init__(self, bart: BartForConditionalGeneration):
        self.bart = bart

    def decode(self, target: Tensor, memory: Tensor, past: list | None) -> tuple[Tensor, list]:
        past = past or [Prefixes()]
        tokens = past[0].tokens
        past[0].tokens = target if tokens is None else torch.cat([tokens, target], 1)
        return self.bart(memory.expand(len(target), -1), decoder_input_ids=past[0].tokens).logits[:, -1:], past


@torch.inference_mode()
def test_d7_the_search_is_that_of_transformers_where_their_rules_are_the_same(bart, monkeypatch):
    """D7: `generate` takes an end among the W best, `beam_search` among the 2W: equal where that makes no difference.

    The special tokens are l0drop's (PAD 0, BOS 1, EOS 2), the norm is that of `generate`: both search one BART alike.
    """
    for module in (search, reference):
        monkeypatch.setattr(module, "length_norm", lambda length, alpha: length**alpha, raising=False)
    monkeypatch.setattr(reference, "normalised", lambda score, length, alpha: score / length**alpha)
    options = dict(num_beams=3, do_sample=False, length_penalty=1.0, max_new_tokens=24, min_new_tokens=1,
                   early_stopping="never", decoder_start_token_id=1, bos_token_id=1, pad_token_id=0, eos_token_id=2,
                   forced_eos_token_id=None, suppress_tokens=[0, 1], return_dict_in_generate=True,
                   output_scores=True)  # fmt: skip
    searched, lengths = SearchedBart(bart), set()
    bart.lm_head.weight = nn.Parameter(0.5 * bart.lm_head.weight)  # less sure of itself
    bart.model.decoder.embed_positions.weight.data *= 4  # what comes depends on where it comes
    for number, source in enumerate(torch.randint(4, 31, (12, 1, 6), generator=torch.Generator().manual_seed(3))):
        bart.final_logits_bias[0, 2] = number % 4 + 2  # ends late, ends early

        def scorer(prefixes, source=source):
            target = torch.tensor([[1, *prefix] for prefix in prefixes])
            return searched.decode(target, source, None)[0][:, -1].log_softmax(-1).tolist()

        wide, narrow = (reference.beam_search(scorer, 3, 24, 1.0, 2, [0, 1], ends=ends) for ends in (6, 3))
        found = beam_search(searched, source, torch.tensor([24]), 3, 1.0)
        tokens = [token for token in found.tokens[0].tolist() if token]
        assert tokens == wide[0]
        theirs = bart.generate(source, attention_mask=torch.ones_like(source), **options)
        if wide == narrow and theirs.sequences[0, -1] == 2:  # theirs may be cut at the longest length, ours must end
            assert tokens == theirs.sequences[0].tolist()[1:]
            assert found.scores[0].item() == pytest.approx(theirs.sequences_scores[0].item(), abs=1e-4)
            lengths.add(len(tokens))
    assert len(lengths) >= 2, lengths
