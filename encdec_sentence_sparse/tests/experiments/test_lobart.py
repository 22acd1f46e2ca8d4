"""LoBART: local attention against the mask of its definition, padding, and the longer table of
positions.
"""

import copy
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
    layer, keep = bart.get_encoder().layers[0].self_attn, documents["attention_mask"].bool()
    tokens = keep[:, None, None].expand(-1, -1, 12, -1)  # as BART hands it to its layers
    band = torch.zeros(3, 1, 12, 12, dtype=torch.bool)
    for document in range(3):
        for i in range(12):
            for j in range(12):
                band[document, 0, i, j] = abs(i - j) <= window / 2 and keep[document, j] or i == j
    vectors = torch.randn(3, 12, 16)
    expected = layer(
        vectors, attention_mask=torch.zeros(band.shape).masked_fill(~band, float("-inf"))
    )[0]
    found = local(bart, window).get_encoder().layers[0].self_attn(vectors, tokens)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    # as eager attention has it
    added = torch.zeros(tokens.shape).masked_fill(~tokens, torch.finfo().min)
    assert torch.equal(
        local(bart, window).get_encoder().layers[0].self_attn(vectors, added)[0], found
    )


def test_limit_a_window_that_covers_the_document_is_full_attention(bart, documents):
    """11 tokens to either side are all of 12, 10 are not."""
    keep = documents["attention_mask"]
    expected = states(bart, documents["input_ids"], keep)[keep.bool()]
    for window, is_full in ((22, True), (1024, True), (20, False)):
        found = states(local(bart, window), documents["input_ids"], keep)[keep.bool()]
        assert torch.allclose(found, expected, atol=2e-5) == is_full


def test_d16_every_second_copy_of_the_encoders_positions_is_flipped(bart):
    """32 positions become 75: there, back, and 11 there; neighbours at a seam are alike; the
    decoder keeps its own.

    D16: BART's two rows that stand for no position stay in front, once.
    """
    old, decoders = (
        coder.embed_positions.weight.detach().clone()
        for coder in (bart.get_encoder(), bart.get_decoder())
    )
    extend_positions(bart, 75)
    new = bart.get_encoder().embed_positions
    assert torch.equal(new.weight, torch.cat([old[:2], old[2:], old[2:].flip(0), old[2:13]]))
    for seam in (32, 64):
        assert torch.equal(new.weight[2 + seam - 1], new.weight[2 + seam])
    assert new.num_embeddings == 77 and new.weight.requires_grad
    assert torch.equal(bart.get_decoder().embed_positions.weight, decoders)
    assert states(bart, torch.full((1, 75), 5)).shape == (1, 75, 16)


def test_d24_presets_hold_the_papers_and_the_released_values():
    """A.1, r* of Section 4.4; released code: targets, Podcast's warm-up and the end of arXiv's
    training.
    """
    paper = asdict(TrainConfig()) | core["paper"]
    long = paper | dict(task="base", max_source=4096, r=30)
    assert asdict(TrainConfig(**PRESETS["paper-arxiv"])) == long | dict(
        data="arxiv", max_target=400, steps=130_000
    )
    # 60,415 documents, two to an update
    podcast = dict(data="podcast", max_target=144, steps=30_207, warmup=5_000)
    # A.3's highest rate, of Podcast's W
    podcast["learning_rate"] = pytest.approx(0.002 / 10_000**0.5)
    assert asdict(TrainConfig(**PRESETS["paper-podcast"])) == long | podcast
    assert PRESETS["paper-kl"] == dict(
        task="kl", max_target=200, warmup=10_000, learning_rate=paper["learning_rate"]
    )
    assert PRESETS["paper-integrated"] == dict(task="integrated", select="approx", max_target=400)
    assert (lobart.WINDOW, lobart.POSITIONS) == (1024, 4096) and set(PRESETS) - {"tiny"} == {
        "paper-arxiv", "paper-podcast", "paper-kl", "paper-integrated",
    }  # fmt: skip


@pytest.mark.usefixtures("unreported")
def test_lobart_is_trained_predicts_and_is_kept(tmp_path):
    """From a BART by the commands, then a map on it; documents are longer than the decoder has
    positions.
    """
    save_bart(tmp_path / "bart")
    flags = [
        "--data",
        "toy:count=4",
        "--steps",
        "1",
        "--model",
        str(tmp_path / "bart"),
        "--max-source",
        "400",
    ]
    lobart.main(["train", "--out", str(tmp_path / "base"), *flags])
    lobart.main(
        ["train", "--task", "kl", "--init", str(tmp_path / "base"), "--out", str(tmp_path / "kl")]
    )
    assert loading.SentenceSparseBart is SentenceSparseBart
    before, after = weights(tmp_path / "base"), weights(tmp_path / "kl")
    positions = "model.encoder.embed_positions.weight"
    assert (
        len(before[positions]) == 4098
        and before.keys() < after.keys()
        and not changed(before, after)
    )
    with torch.no_grad(), pytest.raises(ValueError, match="does not fit"):
        loading.load_run(tmp_path / "kl")
    out = tmp_path / "out.jsonl"
    rest = [
        "--data",
        "toy:count=4",
        "--limit",
        "2",
        "--max-length",
        "9",
        "--r",
        "1",
        "--out",
        str(out),
    ]
    lobart.main(["predict", str(tmp_path / "kl"), *rest])
    assert out.read_text().count("kl.approx.r1") == 2
    for wrong in ([], ["train", "--out", str(tmp_path / "new"), "--data", "toy:count=4"]):
        with pytest.raises(SystemExit):
            lobart.main(wrong)
