"""Each run.sh from start to end, with tiny numbers."""

from pathlib import Path

import pytest
from accelerate.state import AcceleratorState
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

shared = pytest.importorskip("shared")
pytest.importorskip("matplotlib")
run_sh = pytest.importorskip("shared.tests.run_sh")

from ...experiments.samsum.minilm_bart import bart_of
from ..test_sentences import STORIES

FOLDER = Path(__file__).resolve().parents[2]
DATA = {"--data": "toy:count=1"}  # one document has no intervals, which take long
TRAIN = {"--steps": 1, "--width": 16, "--feed-forward": 16, "--vocabulary": 400}
TRAIN |= {"--batch-size": 2, "--max-source": 20}
TINY = {
    "train": DATA | TRAIN | {"--max-target": 9, "--save-every": 1, "--mixed-precision": "no"},
    "predict": DATA | {"--limit": 1, "--max-length": 6, "--min-length": 0, "--beam": 1},
    "experiments.measures": {"--limit": 1},
    "experiments.cost": {"--model": "tiny", "--repeats": 3},
}
TINY["experiments.mean_key"] = TINY["predict"]
TINY["experiments.benchmark"] = {"--quick": "--quick"}  # twice is once
FEW = {"SEEDS": "0", "GAMMAS": "0"}  # of the scripts' loops


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """A BERT with the special tokens of MiniLM."""
    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for story in STORIES for word in story.split()})
    names = ("pad", "unk", "cls", "sep")
    special = {f"{name}_token": f"[{name.upper()}]" for name in names}
    ids = {word: number for number, word in enumerate([*special.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    around = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.post_processor = around
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    sizes = dict(hidden_size=16, intermediate_size=16, max_position_embeddings=64)
    layers = dict(num_hidden_layers=3, num_attention_heads=2)
    BertModel(BertConfig(vocab_size=len(ids), **sizes, **layers)).save_pretrained(folder)
    return folder


def bart_of_a_bert(bert: Path, folder: Path) -> Path:
    """The BART that minilm_bart.py makes of it."""
    bart_of(BertModel.from_pretrained(bert), 2, 3).save_pretrained(folder)
    AutoTokenizer.from_pretrained(bert).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("corpus", ["bbc", "demo", "own", "samsum", "speed", "toy"])
def test_a_script_runs_from_start_to_end(tmp_path, monkeypatch, bert, corpus):
    AcceleratorState._reset_state(True)
    if corpus == "bbc":
        bert = bart_of_a_bert(bert, tmp_path / "bart")
    package = __package__.partition(".tests")[0]
    flags = {f"{package}.{module}": values for module, values in TINY.items()}
    script = FOLDER / "experiments" / corpus / "run.sh"
    # Of samsum's `python -c`.
    monkeypatch.setenv("PYTHONPATH", str(Path(shared.__file__).parents[1]))
    assert len(run_sh.run_script(script, ["toy:count=1", bert], tmp_path, flags, **FEW)) > 1
