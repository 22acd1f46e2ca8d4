"""one.py is the package's mathematics in a BART, and shows the effect."""

import ast
import contextlib
import io
import random
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from .. import masking, one, oracle


@pytest.fixture
def pair():
    """one.py's BART and transformers' with the same weights, which are spread.

    Float64, as Adam enlarges rounding.
    """
    torch.manual_seed(0)
    small = one.Bart().double()
    for weight in small.parameters():
        torch.nn.init.normal_(weight, mean=weight.mean().item(), std=0.3)
    sizes = dict(
        vocab_size=one.V, d_model=one.D, max_position_embeddings=one.POSITIONS, dropout=0.0
    )
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": one.LAYERS,
            f"{side}_attention_heads": one.H,
            f"{side}_ffn_dim": one.FEED_FORWARD,
        }
    special = dict(
        pad_token_id=one.PAD,
        bos_token_id=one.START,
        eos_token_id=one.END,
        decoder_start_token_id=one.START,
    )
    large = BartForConditionalGeneration(BartConfig(**sizes, **special)).double()
    missing, unexpected = large.model.load_state_dict(small.state_dict(), strict=False)
    assert not unexpected and {name.rpartition(".")[0] for name in missing} == {
        "encoder.embed_tokens",
        "decoder.embed_tokens",
    }
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


def tell(**changes) -> tuple[dict, list[str]]:
    """Run one.py with other constants at its top: what is in it then, and the lines it prints.

    "bart", "drawn", "guessed" and "seen" are added: the model, all documents, the selector's wrong
    guess, what heads may see of which documents. "plain_write" writes without noting that.
    """
    left = dict(changes)
    tree = ast.parse(Path(one.__file__).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign):
            several = isinstance(node.targets[0], ast.Tuple)
            names = node.targets[0].elts if several else node.targets
            values = node.value.elts if several and isinstance(node.value, ast.Tuple) else []
            for place, name in enumerate(names):
                if name.id in left:
                    value = ast.parse(repr(left.pop(name.id)), mode="eval").body
                    if several:
                        values[place] = value
                    else:
                        node.value = value
    assert not left, f"not at the top of one.py: {left}"
    space = {"__name__": "one_changed", "drawn": [], "seen": []}
    exec(compile(ast.fix_missing_locations(tree), one.__file__, "exec"), space)
    train, documents, with_errors = space["train"], space["documents"], space["with_errors"]
    space["plain_write"] = space["write"]

    def noting_train(bart):
        space["bart"] = bart
        train(bart)

    def noting_documents(count):
        space["drawn"].append(documents(count))
        return space["drawn"][-1]

    def noting_errors(keep, source, share):
        assert share == 0.2
        space["guessed"] = with_errors(keep, source, share)
        return space["guessed"]

    def noting_write(bart, source, keep=None, **changes):
        if keep is not None:
            space["seen"].append((source, keep))
        return space["plain_write"](bart, source, keep, **changes)

    space |= {
        "write": noting_write,
        "train": noting_train,
        "documents": noting_documents,
        "with_errors": noting_errors,
    }
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        space["main"]()
    return space, output.getvalue().splitlines()


def facts_of(rows: torch.Tensor) -> list[list[tuple[int, int]]]:
    """Who does what, in each row of words; its end is left out."""
    return [list(zip(row[::2], row[1::2], strict=False)) for row in rows.tolist()]


def check_what_is_printed(space: dict, lines: list[str]) -> dict[str, list[float]]:
    """Each number is that of texts written under the masks which its line names.

    Returns the last table: row -> % of the facts written that are wanted, that are true.
    """
    H, layers = space["H"], range(1, space["LAYERS"] + 1)
    *trained, (source, target), (test, test_target) = space["drawn"]
    sizes = [len(texts) for texts, _ in space["drawn"]]
    assert sizes == [space["BATCH"]] * space["UPDATES"] + [space["VALIDATION"], space["TEST"]]
    assert not torch.equal(source[:4], test[:4])
    for texts, keep in space["seen"]:
        assert keep.any(-1).all() and not keep[texts == space["END"]].any()  # D1
    assert source.shape[1:] == (2 * space["FACTS"] + 1,)
    assert target.shape[1:] == (2 * space["WANTED"] + 1,)

    def wanted_words(source, target):
        taken = (source.unsqueeze(-1) == target.unsqueeze(1)).any(-1)
        return taken & (source != space["END"])

    def share(texts, keep=None, true=None, **masks):
        source, target = texts
        written = facts_of(space["plain_write"](space["bart"], source, keep, **masks))
        known = facts_of(source if true else target)
        pairs = zip(written, known, strict=True)
        hits = [fact in facts for own, facts in pairs for fact in own]
        assert len(hits) == len(source) * space["WANTED"]
        return 100 * sum(hits) / len(hits)

    def mask(layer, chosen):
        return torch.tensor([[n == layer and h in chosen for h in range(H)] for n in layers])

    def numbers(line):
        return [float(cell) for cell in line[42:].split()]

    def same(line, name, values):
        assert line[:42].rstrip() == name
        assert numbers(line) == pytest.approx(values, abs=0.51)

    texts, keep = (source, target), wanted_words(source, target)
    lines = [line for line in lines if ": loss " not in line and line]
    lines.pop(0)
    order, plain = [], share(texts)
    for layer in layers:
        alone = [share(texts, keep, masked=mask(layer, [head])) for head in range(H)]
        blind = [share(texts, uniform=mask(layer, [head])) for head in range(H)]
        effects = np.array(alone) - blind
        order.append(sorted(range(H), key=lambda head: (-effects.round(3)[head], head)))  # noqa: B023
        same(lines.pop(0), f"layer {layer}, effect, over equal weights", list(effects))
        same(lines.pop(0), f"layer {layer}, gain over no masks", [one - plain for one in alone])
    sets = {}
    for layer, best_first in zip(layers, order, strict=True):
        own = [mask(layer, best_first[:count]) for count in range(1, H + 1)]
        scores = [share(texts, keep, masked=chosen) for chosen in own]
        same(lines.pop(0), f"layer {layer}, its best 1 to {H} heads: wanted, %", scores)
        sets |= {
            (layer, count): (score, chosen)
            for count, (score, chosen) in enumerate(zip(scores, own, strict=True), start=1)
        }
    (layer, count), (_, best) = max(sets.items(), key=lambda item: round(item[1][0], 3))

    texts, keep = (test, test_target), wanted_words(test, test_target)
    unwanted = ~keep & (test != space["END"])
    rows = {
        "no heads": (keep, mask(0, [])),
        "all of layer 1, the bottom": (keep, mask(1, range(H))),
        f"chosen: {count} of layer {layer}": (keep, best),
        "the same, a fifth of the words wrong": (space["guessed"], best),
        "the same, the unwanted words": (unwanted, best),
    }
    assert lines.pop(0).split() == [
        "Masked;",
        "held-out",
        "documents",
        "wanted,",
        "%",
        "true,",
        "%",
    ]
    table = {}
    for name, (seen, masked) in rows.items():
        table[name] = [share(texts, seen, true, masked=masked) for true in (False, True)]
        same(lines.pop(0), name, table[name])
    low, high = (pick(row[0] for row in table.values()) for pick in (min, max))
    [last] = lines
    found = re.fullmatch(
        r"The same weights: by what heads may see, (\d+) to (\d+) % is wanted.", last
    )
    assert [float(number) for number in found.groups()] == pytest.approx([low, high], abs=0.51)
    return table


def test_it_prints_what_it_computed_and_shows_the_effect():
    """Margins: half of the mean difference over ten seeds."""
    table = check_what_is_printed(*tell())
    none, bottom, chosen, erring, others = (wanted for wanted, _ in table.values())
    assert chosen > none + 22 and chosen > bottom + 19 and others < none - 22
    assert none < 60 and chosen > erring + 15
    true = [is_true for _, is_true in table.values()]
    assert min(true[0], true[2], true[4]) > 90 and true[1] < 92


def test_it_runs_alone(tmp_path):
    text = Path(one.__file__).read_text(encoding="utf-8")
    shorter = text.replace("UPDATES, BATCH, RATE = 600, 128", "UPDATES, BATCH, RATE = 2, 4")
    assert shorter != text
    (tmp_path / "paper.py").write_text(shorter, encoding="utf-8")
    command = [sys.executable, "paper.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].startswith("The same weights")


QUICK = dict(UPDATES=2, BATCH=4, VALIDATION=5, TEST=6)
CHANGES = [
    dict(seed=5, FEED_FORWARD=20, RATE=1e-4),
    dict(FACTS=5, WANTED=3),
    dict(FACTS=2, WANTED=1),
    dict(
        PEOPLE=["Ann", "Bob", "Cleo", "Dan", "Eva"],
        DEEDS=["paints", "sleeps", "sings", "runs", "reads", "cooks", "swims", "digs", "eats"],
    ),
    dict(D=48),
    dict(H=2),
    dict(LAYERS=3),
]


def test_each_constant_at_the_top_is_changed():
    first = Path(one.__file__).read_text(encoding="utf-8").partition("\nPAD, START")[0]
    names = {
        name.id
        for node in ast.parse(first).body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    }
    assert names == {name for change in [QUICK, *CHANGES] for name in change}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_size_follows_from_the_constants(change):
    check_what_is_printed(*tell(**QUICK | change))


@pytest.mark.parametrize("change", [
    dict(D=66), dict(H=5), dict(FACTS=9), dict(FACTS=0), dict(WANTED=4), dict(WANTED=0),
    dict(PEOPLE=["Ann", "Bob"]), dict(UPDATES=0), dict(TEST=0), dict(VALIDATION=0), dict(RATE=-1),
], ids=str)  # fmt: skip
def test_constants_that_contradict_each_other_are_refused_before_training(change):
    with pytest.raises(ValueError, match="multiple of H|0 < WANTED < FACTS"):
        tell(**{"UPDATES": 10**9} | change)
