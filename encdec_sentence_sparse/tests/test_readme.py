"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from ..selection import Selection
from ..text import train_tokenizer

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_of_the_first_screen_runs(tmp_path):
    """On a local BART with the structure of facebook/bart-large-cnn: three sentences and `</s>`, two of them read."""
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert code.count("\n") <= 16 and text.index(code) < 900  # the first screen
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    heads = dict(encoder_attention_heads=4, decoder_attention_heads=4)
    BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes, **heads)).save_pretrained(tmp_path)
    document = re.findall(r'"([^"]*\.)"', re.search(r"document = \[(.*)\]", code)[1])
    train_tokenizer([" ".join(document)] * 4, 400).save_pretrained(tmp_path)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    code = code.replace("from encdec_sentence_sparse import", f"from {package} import")
    names: dict = {}
    exec(code.replace("facebook/bart-large-cnn", tmp_path.as_posix()), names)
    bart, ids, sentence_ids = names["bart"], names["ids"], names["sentence_ids"]
    last = names["tokenizer"].convert_ids_to_tokens(ids[0, sentence_ids[0] == 2].tolist())[-1]
    assert len(document) == 3 and sentence_ids.max() == 3 and last.endswith(".")
    source, flags = dict(input_ids=ids, sentence_ids=sentence_ids), dict(num_beams=4, length_penalty=2.0, max_length=60)
    scored = flags | dict(output_scores=True, return_dict_in_generate=True)
    selected, bart.selection = bart.generate(**source, **scored), Selection("full")
    full = bart.generate(**source, **scored)
    assert selected.sequences.tolist() == names["summary"].tolist()
    assert (selected.sequences_scores - full.sequences_scores).abs().max() > 1e-4


def test_commands_have_flags_that_exist(monkeypatch):
    """Every command of the README is parsed by the program that it names."""
    pytest.importorskip("shared")
    from .. import benchmark, evaluate, figures, train

    monkeypatch.setattr(evaluate, "default_data", lambda run: "toy")
    monkeypatch.setattr(train, "train", lambda *parsed: parsed)
    monkeypatch.setattr(figures, "read_metrics", lambda path: (_ for _ in ()).throw(ValueError("parsed")))
    monkeypatch.setattr(benchmark, "make_models", lambda *a: (_ for _ in ()).throw(ValueError("parsed")))
    monkeypatch.setattr(benchmark, "time_growth", lambda *a: (_ for _ in ()).throw(ValueError("parsed")))
    found = re.findall(r"^python -m encdec_sentence_sparse\.(\w+)(.*?)(?: +#.*)?$", README.read_text(), re.MULTILINE)
    for program, flags in found:
        if program == "train":
            config, out, resume = train.parse(flags.split())
            assert out.parts[0] == "runs" and not resume and (config.task == "base") == ("--task base" in flags)
        elif program == "evaluate":
            assert evaluate.parse(flags.split()).runs
        else:
            with pytest.raises((ValueError, SystemExit), match="parsed"):
                {"figures": figures, "benchmark": benchmark}[program].main(flags.split())
    assert {program for program, _ in found} == {"train", "evaluate", "figures", "benchmark"} and len(found) > 10
