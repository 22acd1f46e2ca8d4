"""LoBART: local attention against the mask of its definition, and the table of positions."""

import copy
import itertools
from dataclasses import asdict

import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")

from ... import loading
from ...config import PRESETS as core
from ...config import TrainConfig
from ...experiments import lobart
from ...experiments.lobart import PRESETS, extend_positions, make_local
from ...model import SentenceSparseBart
from ..conftest import make_config, roughen
from ..test_config import save_bart
from ..test_train import changed, weights


@pytest.fixture
def bart() -> BartForConditionalGeneration:
    return roughen(BartForConditionalGeneration(make_config()))


def local(bart: BartForConditionalGeneration, window: int) -> BartForConditionalGeneration:
    """A copy of it with local attention."""
    model = copy.deepcopy(bart)
    make_local(model, window)
    return model


def states(
    model: torch.nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
):
    return model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)[0]


@pytest.mark.parametrize("window", [2, 4, 10, 22, 100])
def test_a_layer_sees_a_band_without_padding(bart, documents, window):
    """Against attention to all words with the mask of the definition; padding sees itself."""
    keep = documents["attention_mask"].bool()
    tokens = keep[:, None, None].expand(-1, -1, 12, -1)  # as BART hands it to its layers
    band = torch.zeros(3, 1, 12, 12, dtype=torch.bool)
    for document, i, j in itertools.product(range(3), range(12), range(12)):
        band[document, 0, i, j] = abs(i - j) <= window / 2 and keep[document, j] or i == j
    vectors = torch.randn(3, 12, 16)
    mask = torch.zeros(band.shape).masked_fill(~band, float("-inf"))
    expected, _ = bart.get_encoder().layers[0].self_attn(vectors, attention_mask=mask)
    layer = local(bart, window).get_encoder().layers[0].self_attn
    found, _ = layer(vectors, tokens)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    # As eager attention has it.
    added = torch.zeros(tokens.shape).masked_fill(~tokens, torch.finfo().min)
    assert torch.equal(layer(vectors, added)[0], found)


def test_d16_every_second_copy_of_the_encoders_positions_is_flipped(bart):
    """32 positions become 75: there, back, and 11 there; the decoder keeps its own.

    D16: BART's two rows that stand for no position stay in front, once.
    """
    sides = bart.get_encoder(), bart.get_decoder()
    old, decoders = (side.embed_positions.weight.detach().clone() for side in sides)
    extend_positions(bart, 75)
    new = bart.get_encoder().embed_positions
    assert torch.equal(new.weight, torch.cat([old[:2], old[2:], old[2:].flip(0), old[2:13]]))
    for seam in (32, 64):
        assert torch.equal(new.weight[2 + seam - 1], new.weight[2 + seam])
    assert new.num_embeddings == 77 and new.weight.requires_grad
    assert torch.equal(bart.get_decoder().embed_positions.weight, decoders)
    assert states(bart, torch.full((1, 75), 5)).shape == (1, 75, 16)


def test_d24_presets_hold_the_papers_and_the_released_values():
    """A.1, r* of Section 4.4; released code: targets, Podcast's warm-up, arXiv's end."""
    paper = asdict(TrainConfig()) | core["paper"]
    long = paper | dict(task="base", max_source=4096, r=30)
    arxiv = dict(data="arxiv", max_target=400, steps=130_000)
    # 60,415 documents, two to an update; A.3's highest rate, of Podcast's W
    podcast = dict(data="podcast", max_target=144, steps=30_207, warmup=5_000)
    podcast["learning_rate"] = pytest.approx(0.002 / 10_000**0.5)
    assert asdict(TrainConfig(**PRESETS["paper-arxiv"])) == long | arxiv
    assert asdict(TrainConfig(**PRESETS["paper-podcast"])) == long | podcast
    rate = paper["learning_rate"]
    kl = dict(task="kl", max_target=200, warmup=10_000, learning_rate=rate)
    integrated = dict(task="integrated", select="approx", max_target=400)
    assert (PRESETS["paper-kl"], PRESETS["paper-integrated"]) == (kl, integrated)
    assert len(PRESETS) == 5 and PRESETS["tiny"] == {}
    assert (lobart.WINDOW, lobart.POSITIONS) == (1024, 4096)


@pytest.mark.usefixtures("unreported")
def test_lobart_is_trained_predicts_and_is_kept(tmp_path):
    """From a BART, then a map on it; documents are longer than the decoder has positions."""
    save_bart(tmp_path / "bart")
    base, kl, out = tmp_path / "base", tmp_path / "kl", tmp_path / "out.jsonl"
    for command in (
        f"train --out {base} --model {tmp_path}/bart --data toy:count=4 --steps 1 --max-source 400",
        f"train --out {kl} --task kl --init {base}",
        f"predict {kl} --data toy:count=4 --limit 2 --max-length 9 --r 1 --out {out}",
    ):
        lobart.main(command.split())
    assert loading.SentenceSparseBart is SentenceSparseBart
    before, after = weights(base), weights(kl)
    assert len(before["model.encoder.embed_positions.weight"]) == 4098
    assert before.keys() < after.keys() and not changed(before, after)
    assert out.read_text().count("kl.approx.r1") == 2
    with pytest.raises(ValueError, match="does not fit"):
        loading.load_run(kl)
    for wrong in ("", f"train --out {tmp_path}/new --data toy:count=4"):
        with pytest.raises(SystemExit):
            lobart.main(wrong.split())
