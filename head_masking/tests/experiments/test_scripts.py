"""Every run.sh from its first line to its last, with tiny numbers, models and corpora."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

pytest.importorskip("shared")
pictures = pytest.importorskip("matplotlib.figure")
run_sh = pytest.importorskip("shared.tests.run_sh")

from shared.data import load
from shared.toy import SPLITS

from ...text import train_tokenizer
from ..conftest import DATA

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
ARGUMENTS = {
    "toy": [],
    "samsum": ["data", "base", "bert"],
    "dialogsum": ["data", "bert", "data"],
    "bbc": ["data", "bert", "stronger", "data", "stronger", "runs/hm-bbc/tagger-1"],
}
ONE = {  # of the variables that a script reads, in place of more
    "bbc": {"SEEDS": "0 1"},
    "samsum": {"MODELS": "summarizer", "TAGGERS": "minilm"},
}
TRAINING = {
    "--steps": 2,
    "--save-every": 2,
    "--warmup": 1,
    "--batch-size": 4,
    "--accumulate": 1,
    "--examples": 4,
}
TRAINING |= {"--mixed-precision": "no", "--max-source": 20}
SIZES = {"--max-target": 4, "--vocabulary": 300, "--width": 12, "--feed-forward": 8}
FLAGS = {
    "train": TRAINING,
    "predict": {"--beam": 1, "--max-length": 4},
    "experiments.summarizer": TRAINING | SIZES,
    "experiments.sweep": {"--documents": 2, "--group": 12},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """data, each script's corpus.

    Bert, an encoder; base-0, a BART; stronger, one of three layers with twelve heads.
    """
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "data").mkdir()
    for split, count in (("train", 8), ("validation", 4), ("test", 4)):
        lines = []
        for example in load(DATA, "train", count):
            salient = [place < 3 for place in range(len(example.document))]  # as in BBC
            text = {"id": example.id, "document": example.document, "summary": example.summary}
            lines.append(json.dumps(text | {"salient": salient}))
        (folder / f"data/{split}.jsonl").write_text("\n".join(lines))
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 300)
    sizes = dict(vocab_size=len(tokenizer), max_position_embeddings=24)
    one = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    models = {"bert": BertModel(BertConfig(**sizes, **one))}
    for name, layers, heads in (("base-0", 2, 4), ("stronger", 3, 12)):
        own = dict(d_model=24, encoder_layers=1, encoder_ffn_dim=8, decoder_ffn_dim=8)
        own |= dict(encoder_attention_heads=heads, decoder_attention_heads=heads)
        config = BartConfig(**sizes, **own, decoder_layers=layers)
        models[name] = BartForConditionalGeneration(config)
        models[name].generation_config.update(max_length=4, num_beams=2)
    for name, model in models.items():
        for part in (model, tokenizer):
            part.save_pretrained(folder / name)
    return folder


def test_each_corpus_has_its_script_here():
    assert {path.parent.name for path in FOLDER.glob("*/run.sh")} == ARGUMENTS.keys()


@pytest.mark.skipif(not shutil.which("bash"), reason="the scripts are for bash")
@pytest.mark.parametrize("corpus", ARGUMENTS)
def test_a_script_runs_to_its_end(corpus, folder, monkeypatch):
    """dialogsum/run.sh goes on from the runs of samsum/run.sh.

    That a figure can be drawn has tests of its own.
    """
    monkeypatch.setattr(pictures.Figure, "savefig", lambda figure, path, **_: Path(path).touch())
    for split in SPLITS:
        monkeypatch.setitem(SPLITS, split, 4)
    script = FOLDER / corpus / "run.sh"
    flags = {f"head_masking.{module}": FLAGS[module] for module in FLAGS}
    variables = {"SEEDS": "0", "SIZES": "100"} | ONE.get(corpus, {})
    commands = run_sh.run_script(script, ARGUMENTS[corpus], folder, flags, **variables)
    tables = (folder / "head_masking/experiments" / corpus).glob("*.csv")
    assert len(commands) > 8 and all(len(path.read_text().splitlines()) > 1 for path in tables)
