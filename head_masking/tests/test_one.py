"""one.py is the package's mathematics in a BART, and shows the effect."""

import random
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from .. import masking, one, oracle

SOURCE = Path(one.__file__).read_text(encoding="utf-8")
TOP, MARK, REST = SOURCE.partition("\nPAD, START")
REST = MARK + REST


@pytest.fixture
def pair():
    """one.py's BART and transformers' with the same weights, which are spread.

    Float64, as Adam enlarges rounding.
    """
    torch.manual_seed(0)
    small = one.Bart().double()
    for weight in small.parameters():
        torch.nn.init.normal_(weight, mean=weight.mean().item(), std=0.3)
    sizes = dict(vocab_size=one.V, d_model=one.D, max_position_embeddings=one.POSITIONS)
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": one.LAYERS, f"{side}_attention_heads": one.H}
        sizes[f"{side}_ffn_dim"] = one.FEED_FORWARD
    special = dict(pad_token_id=one.PAD, bos_token_id=one.START, eos_token_id=one.END)
    special |= dict(decoder_start_token_id=one.START, dropout=0.0)
    large = BartForConditionalGeneration(BartConfig(**sizes, **special)).double()
    missing, unexpected = large.model.load_state_dict(small.state_dict(), strict=False)
    embeddings = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}  # one.py has one
    assert not unexpected and {*missing} == embeddings
    return small, large


def ragged_batch(count: int = 8):
    """Documents of two to four facts, padded, their summaries, and what may be seen."""
    source, target = one.documents(count)
    source = source.masked_fill(
        torch.arange(9) >= torch.arange(count).unsqueeze(-1) % 5 + 5, one.PAD
    )
    keep = torch.rand(source.shape) < 0.5
    keep[:, 0] = True
    return source, target, keep


def inputs_of(target):
    return torch.cat([torch.full((len(target), 1), one.START), target[:, :-1]], 1)


def logits_of(large, source, target):
    mask = (source != one.PAD).long()
    return large(
        source, attention_mask=mask, decoder_input_ids=inputs_of(target), use_cache=False
    ).logits


def test_the_functions_of_the_idea_are_equal():
    keep, is_chosen = torch.rand(3, 7) < 0.5, torch.tensor([True, False, True, False])
    assert torch.equal(
        one.head_mask(keep, is_chosen), masking.head_mask(keep, is_chosen.unsqueeze(-1))
    )
    rng = random.Random(0)
    for _ in range(50):
        source, summary = ([rng.choice("abcdef") for _ in range(length)] for length in (20, 9))
        marked = one.longest_common_runs(source, summary)
        assert marked == oracle.longest_common_runs(source, summary) and any(marked)


def test_three_updates_are_equal(pair):
    """Loss, gradients and outputs, before and after each."""
    small, large = pair
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in pair]
    for _ in range(4):
        source, target, _ = ragged_batch()
        losses = (
            one.loss_of(small, source, target),
            large(source, (source != one.PAD).long(), labels=target).loss,
        )
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        own = {name: weight.grad for name, weight in small.named_parameters()}
        others = {name: large.model.get_parameter(name).grad for name in own}
        torch.testing.assert_close(own, others, rtol=1e-5, atol=1e-5)


def test_masked_and_uniform_heads_are_the_packages(pair):
    small, large = (model.eval() for model in pair)
    source, target, keep = ragged_batch()
    inputs = inputs_of(target)
    chosen, heads = one.NONE.clone(), {1: [2], 2: [0, 3]}
    for layer, own in heads.items():
        chosen[layer - 1, own] = True
    plain = small(source, inputs)
    torch.testing.assert_close(plain, logits_of(large, source, target), rtol=1e-5, atol=1e-5)
    with masking.mask_heads(large, heads, keep):
        masked = logits_of(large, source, target)
    torch.testing.assert_close(
        small(source, inputs, keep, masked=chosen), masked, rtol=1e-5, atol=1e-5
    )
    with masking.uniform_heads(large, heads):
        uniform = logits_of(large, source, target)
    torch.testing.assert_close(small(source, inputs, uniform=chosen), uniform, rtol=1e-5, atol=1e-5)
    assert (masked - plain).abs().max() > 0.1 and (uniform - plain).abs().max() > 0.1


def test_a_document_that_loses_all_its_words_is_refused_as_in_the_package(pair):
    small, large = pair
    source, target, keep = ragged_batch(3)
    keep[1] = source[1] == one.PAD  # which is hidden whatever `keep` says
    with pytest.raises(ValueError, match="keep hides all"):
        small(source, target, keep)
    with (
        pytest.raises(ValueError, match="keep hides all"),
        masking.mask_heads(large, {1: [0]}, keep),
    ):
        logits_of(large, source, target)


def test_section_4_1_the_effect_is_oracle_minus_uniform_of_the_same_heads():
    def score(keep=None, masked=one.NONE, uniform=one.NONE):
        assert keep == ("oracle" if masked.any() else None)
        return 7 * masked.sum() + 2 * uniform.sum()

    chosen = one.heads(2, [0, 3])
    assert chosen.tolist() == [[False] * 4, [True, False, False, True]]
    assert one.effect(score, "oracle", chosen) == 10


@pytest.mark.parametrize("seed", range(6))
def test_section_5_heads_are_chosen_as_in_the_package(seed):
    """By random effects and scores; one head at a time."""
    pytest.importorskip("shared")
    from ..experiments.sweep import select_heads

    effects = torch.rand(one.LAYERS, one.H, generator=torch.Generator().manual_seed(seed)).tolist()

    def score(keep, masked):
        assert keep == "oracle"
        return random.Random(f"{seed}{masked}").random()

    def measure(kind, layer, heads):
        return {"rouge1+2": np.array(score("oracle", one.heads(layer, heads)))}

    places = product((1, 2), range(one.H))
    of_heads = {
        (layer, head): {"rouge1": np.array(effects[layer - 1][head])} for layer, head in places
    }
    [(layer, own)] = select_heads(measure, of_heads, group=1)[0].items()
    assert torch.equal(one.select_heads(score, "oracle", effects), one.heads(layer, own))


def test_errors_are_a_share_of_the_words_and_leave_each_document_a_word():
    torch.manual_seed(0)
    source, target = one.documents(2000)
    keep = one.oracle_keep(source, target)
    guessed = one.with_errors(keep, source, 0.2)
    assert guessed.any(-1).all() and not guessed[source == one.END].any()
    share = (guessed != keep)[:, :-1].float().mean().item()
    assert abs(share - 0.2) < 0.016  # 16,000 words: five standard deviations
    assert torch.equal(one.with_errors(keep, source, 0.0), keep)
    # D2: all is wrong where the summary takes all words but the end
    assert torch.equal(one.with_errors(source != one.END, source, 1.0), source != one.END)


def changed(**constants) -> ModuleType:
    """one.py with other values of the constants at its top."""
    module = ModuleType("one_changed")
    exec(TOP, vars(module))
    vars(module).update(constants)
    exec(REST, vars(module))
    return module


def noted(module: ModuleType, name: str) -> list[tuple]:
    """(arguments, result) of each later call of a function of the module."""
    calls, function = [], getattr(module, name)

    def noting(*arguments, **masks):
        result = function(*arguments, **masks)
        calls.append((arguments, result))
        return result

    setattr(module, name, noting)
    return calls


def cells(line: str) -> list[float]:
    return [float(cell) for cell in line[42:].split()]


def table_of(module: ModuleType, capsys) -> list[list[float]]:
    """Run `main`: each number printed is that of texts written under the masks its line names.

    Returns the last table: % of the facts written that are wanted, that are true.
    """
    names = ("documents", "select_heads", "with_errors", "write")
    drawn, selected, guessed, written = (noted(module, name) for name in names)
    module.main()
    lines = capsys.readouterr().out.splitlines()
    lines = iter(line for line in lines if line and ": loss " not in line)
    bart = written[0][0][0]
    layers = range(1, module.LAYERS + 1)

    def share(text, source, keep=None, **masks):
        return module.share_of(module.write(bart, source, keep, **masks), text)

    def check_next(name, values):
        line = next(lines)
        assert line[:42].rstrip() == name and cells(line) == pytest.approx(values, abs=0.51)

    sizes = [module.BATCH] * module.UPDATES + [module.VALIDATION, module.TEST]
    assert [count for (count,), _ in drawn] == sizes
    for (_, source, keep), _ in written:
        if keep is not None:
            assert keep.any(-1).all() and not keep[source == module.END].any()  # D1
    source, target = drawn[-2][1]
    assert (source.size(1), target.size(1)) == (2 * module.FACTS + 1, 2 * module.WANTED + 1)

    keep, plain, effects = module.oracle_keep(source, target), share(target, source), []
    next(lines)
    for layer in layers:
        single = [module.heads(layer, [head]) for head in range(module.H)]
        alone = np.array([share(target, source, keep, masked=head) for head in single])
        effects.append(alone - [share(target, source, uniform=head) for head in single])
        check_next(f"layer {layer}, effect, over equal weights", effects[-1])
        check_next(f"layer {layer}, gain over no masks", alone - plain)
    [((_, given_keep, given_effects), best)] = selected
    assert torch.equal(given_keep, keep)
    np.testing.assert_allclose(given_effects, effects)
    tried = [next(lines) for _ in layers]
    assert [line.partition(",")[0] for line in tried] == [f"layer {layer}" for layer in layers]
    most = max(max(cells(line)) for line in tried)
    assert most == pytest.approx(share(target, source, keep, masked=best), abs=0.51)

    source, target = drawn[-1][1]
    keep = module.oracle_keep(source, target)
    chosen = f"chosen: {best.sum()} of layer {best.any(-1).nonzero().item() + 1}"
    rows = {
        "no heads": (keep, module.NONE),
        "all of layer 1, the bottom": (keep, module.heads(1, range(module.H))),
        chosen: (keep, best),
        "the same, a fifth of the words wrong": (guessed[0][1], best),
        "the same, the unwanted words": (~keep & (source != module.END), best),
    }
    assert guessed[0][0][2] == 0.2
    assert next(lines).split()[-4:] == ["wanted,", "%", "true,", "%"]
    table = []
    for name, (seen, masked) in rows.items():
        table.append([share(text, source, seen, masked=masked) for text in (target, source)])
        check_next(name, table[-1])
    wanted = [row[0] for row in table]
    ends = re.fullmatch(r".* (\d+) to (\d+) % is wanted\.", next(lines)).groups()
    assert list(map(float, ends)) == pytest.approx([min(wanted), max(wanted)], abs=0.51)
    return table


def test_a_share_is_of_the_facts_written():
    """Who and what together: of two facts one is the text's, another one's deed is not."""
    text = torch.tensor([[4, 12, 5, 13, one.END], [6, 14, 7, 15, one.END]])
    assert one.share_of(torch.tensor([[5, 13, 4, 13], [7, 15, 6, 14]]), text) == 75


def test_it_prints_what_it_computed_and_shows_the_effect(capsys):
    """Margins: half of the mean difference over ten seeds."""
    table = table_of(changed(), capsys)
    none, bottom, chosen, erring, others = (wanted for wanted, _ in table)
    assert chosen > none + 22 and chosen > bottom + 19 and others < none - 22
    assert none < 60 and chosen > erring + 15
    true = [is_true for _, is_true in table]
    assert min(true[0], true[2], true[4]) > 90 and true[1] < 92


def test_it_runs_alone(tmp_path):
    shorter = SOURCE.replace("UPDATES, BATCH, RATE = 600, 128", "UPDATES, BATCH, RATE = 2, 4")
    assert shorter != SOURCE
    (tmp_path / "paper.py").write_text(shorter, encoding="utf-8")
    command = [sys.executable, "paper.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].startswith("The same weights")


QUICK = dict(UPDATES=2, BATCH=4, VALIDATION=5, TEST=6)
DEEDS = ["paints", "sleeps", "sings", "runs", "reads", "cooks", "swims", "digs", "eats"]
CHANGES = [
    dict(seed=5, FEED_FORWARD=20, RATE=1e-4),
    dict(FACTS=5, WANTED=3),
    dict(FACTS=2, WANTED=1),
    dict(PEOPLE=["Ann", "Bob", "Cleo", "Dan", "Eva"], DEEDS=DEEDS),
    dict(D=48),
    dict(H=2),
    dict(LAYERS=3),
]


def test_each_constant_at_the_top_is_changed():
    top = {}
    exec(TOP, top)
    constants = {name for name, value in top.items() if isinstance(value, int | float | list)}
    assert constants == {name for change in [QUICK, *CHANGES] for name in change}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_size_follows_from_the_constants(change, capsys):
    table_of(changed(**QUICK | change), capsys)


@pytest.mark.parametrize("change", [
    dict(D=66), dict(H=5), dict(FACTS=9), dict(FACTS=0), dict(WANTED=4), dict(WANTED=0),
    dict(PEOPLE=["Ann", "Bob"]), dict(UPDATES=0), dict(TEST=0), dict(VALIDATION=0), dict(RATE=-1),
], ids=str)  # fmt: skip
def test_constants_that_contradict_each_other_are_refused_before_training(change):
    with pytest.raises(ValueError, match="multiple of H|0 < WANTED < FACTS"):
        changed(**{"UPDATES": 10**9} | change).main()
