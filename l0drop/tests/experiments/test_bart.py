"""The adapter for a `transformers` BART: compressed memory and counts against the full-length gated run."""

import itertools
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from .. import search
from ..bart import GatedBart, counted_attention, generate_from, load_pretrained
from ..gates import Memory, open_probability
from ..model import objective
from ..search import beam_search
from . import reference

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


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_load_pretrained_keeps_what_stands_before_a_text(bart, tmp_path, bart_tokenizer):
    bart.save_pretrained(tmp_path)
    bart_tokenizer.save_pretrained(tmp_path)
    loaded, tokenizer = load_pretrained(str(tmp_path))
    assert tokenizer.encode("a b").ids == bart_tokenizer("a b").input_ids[:-1]
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in bart.state_dict().items())
    with pytest.raises(ValueError, match="--max-source is 33; .* has 32 positions"):
        load_pretrained(str(tmp_path), 33)


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
@pytest.mark.parametrize("damage", ["missing", "NaN"])
def test_load_pretrained_fills_no_weight_at_random(bart, bart_tokenizer, tmp_path, damage):
    weights, name = bart.state_dict(), "model.decoder.layers.1.fc1.weight"
    weights |= {name: weights[name] / 0}
    if damage == "missing":
        del weights[name]
    bart.save_pretrained(tmp_path, state_dict=weights)
    bart_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"--model .*: {name} is missing among its weights, or holds NaN"):
        load_pretrained(str(tmp_path))


def test_d8_what_a_pattern_drops_is_as_if_it_were_not_there(bart):
    """Two patterns that differ by source; the decoder reads what is left of the encoder's states, and nothing else."""
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
@pytest.mark.parametrize(
    "flags", [["--l0-weight", "3"], ["--l0drop", "none", "--pattern", "freq"]], ids=["gates", "rule"]
)
def test_train_evaluate_and_predict_with_a_pretrained_model(bart, bart_tokenizer, tmp_path, flags, capsys):
    pytest.importorskip("shared")
    from shared.data import load

    from .. import evaluate, predict, train
    from ..loading import load_run

    bart.generation_config.update(max_length=12, num_beams=2)
    bart.save_pretrained(tmp_path / "bart")
    bart_tokenizer.save_pretrained(tmp_path / "bart")
    rows = [{"source": " ".join(words), "target": words[0]} for words in itertools.permutations("abc")]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, sizes = tmp_path / "run", ["--save-every", "3", "--max-source", "30", "--max-target", "30"]
    command = ["--out", str(out), "--model", str(tmp_path / "bart"), "--data", str(tmp_path), *sizes, *flags]
    train.main([*command, "--steps", "3"])
    assert bool(load_run(out).dropped) == ("freq" in flags)
    shutil.rmtree(tmp_path / "bart")  # a run is whole without it
    train.main([*command, "--steps", "6", "--resume"])
    run = load_run(out)
    item = run.encode(load(str(tmp_path), "test"))[0]
    assert item.source == [0, 4, 5, 6, 2] and item.target == [0, 4, 2]  # <s> a b c </s>
    assert run.collate([item]).target_input.tolist() == [[2, 0, 4]]  # begins with BART's own start
    for folder in ("pruned", "dense"):
        evaluate.main([str(out), *["--dense"] * (folder == "dense"), "--predictions", str(tmp_path / folder)])
    assert (tmp_path / "dense/run.jsonl").read_text() == (tmp_path / "pruned/run.jsonl").read_text()
    (tmp_path / "text.txt").write_text("a b c\nc b\n")
    capsys.readouterr()
    predict.main([str(out), str(tmp_path / "text.txt"), "--show-pruned"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].replace("[", "").replace("]", "") == "a b c"


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
