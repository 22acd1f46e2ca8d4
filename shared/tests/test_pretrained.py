"""pretrained.py on small models with the faults that published ones have."""

import json

import pytest
import torch

transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GenerationConfig,
    RobertaModel,
)

from shared.pretrained import generation, load, positions_of

ENCODER = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghij"]


def tokenizer(**special):
    """A tokenizer of single letters, <s> and </s> around each text."""
    words = {token: number for number, token in enumerate(TOKENS)}
    own = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    own.post_processor = template("<s> $A </s>")
    names = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>") | special
    given = {name: token for name, token in names.items() if token}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, **given)


def template(single):
    ends = [("<s>", 0), ("</s>", 2)]
    return processors.TemplateProcessing(single=single, special_tokens=ends)


def bart(folder, rows=14, change=lambda model: None, **special):
    """Save a small BART, changed by `change`, and its tokenizer."""
    torch.manual_seed(0)
    sizes = {"vocab_size": rows, "d_model": 8, "max_position_embeddings": 40}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 1, f"{side}_ffn_dim": 8}
    model = BartForConditionalGeneration(BartConfig(init_std=1.0, **sizes))
    change(model)
    model.save_pretrained(folder)
    tokenizer(**special).save_pretrained(folder)
    return folder


def edit(folder, file, **values):
    """Change fields of a JSON file."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def refusal(*arguments, **options):
    with pytest.raises(ValueError) as error:
        load(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_weights_are_float32_and_a_text_that_looks_like_a_token_is_text(tmp_path):
    model, read = load("bart", bart(tmp_path, change=lambda model: model.to(torch.bfloat16)))
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}
    assert not model.training
    ids = read("a</s>b<pad>").input_ids
    assert ids[0] == 0 and ids[-1] == 2 and not {0, 1, 2} & set(ids[1:-1])


def test_a_token_given_beyond_the_models_own_is_text_and_says_so(tmp_path, capsys):
    theirs = tokenizer()
    theirs.add_special_tokens({"additional_special_tokens": ["[speaker1]"]})
    bart(tmp_path, rows=len(theirs))
    theirs.save_pretrained(tmp_path)
    _, read = load("bart", tmp_path)
    assert "[speaker1] in a text are read as text" in capsys.readouterr().err
    read.save_pretrained(tmp_path / "saved")
    for again in (read, transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert 14 not in again("a[speaker1]</s>b").input_ids
        # whose prediction it would spoil (rouge counts "speaker1" as a word)
        assert again.decode([14, 4, 2], skip_special_tokens=True) == "a"


@pytest.mark.parametrize(
    ("single", "special", "said"),
    [
        (None, {}, "puts no start before a text and no end behind it"),
        ("<s> $A", {}, "puts no start"),
        ("$A </s>", {}, "puts no start"),
        ("$A </s> <s>", {}, "puts no start"),  # XLNet's
        ("</s> $A </s>", {}, r"has start and end \[2, 2\] and padding 1: they must differ"),
        ("<s> $A </s>", {"pad_token": "</s>"}, "and padding 2: they must differ"),
        ("<s> $A </s>", {"pad_token": None}, "has no padding token"),
    ],
)
def test_a_tokenizer_that_puts_no_start_and_end_around_a_text_is_refused(
    tmp_path, single, special, said
):
    theirs = tokenizer(**special)
    none = processors.ByteLevel(trim_offsets=False)
    theirs.backend_tokenizer.post_processor = template(single) if single else none
    theirs.save_pretrained(bart(tmp_path))
    with pytest.raises(ValueError, match=f"its tokenizer .*{said}"):
        load("bart", tmp_path)


def test_models_of_another_kind_are_named(tmp_path):
    BertModel(BertConfig(**ENCODER)).save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    bart(tmp_path / "bart")
    assert "is a model of the kind bert; wanted is a BART" in refusal("bart", tmp_path / "bert")
    assert "is a model of the kind bart; wanted is a BERT" in refusal("bert", tmp_path / "bart")
    remedy = "if it is a name of the hub: HF_HUB_OFFLINE=0 hf download no/such"
    assert f"there is no folder 'no/such'; {remedy}" in refusal("bart", "no/such")
    # of an encoder-decoder the encoder
    assert load("encoder", tmp_path / "bart")[0].config.d_model == 8
    assert type(load("encoder", tmp_path / "bert")[0]) is BertModel


def test_weights_that_are_nan_or_missing_are_refused(tmp_path):
    def spoil(model):
        model.model.encoder.layers[0].fc1.weight.data[0, 0] = torch.nan

    said = refusal("bart", bart(tmp_path / "nan", change=spoil))
    assert "layers.0.fc1.weight is missing, of another size or NaN" in said
    edit(bart(tmp_path / "more"), "config.json", encoder_layers=2)
    assert "layers.1" in refusal("bart", tmp_path / "more")
    (bart(tmp_path / "cut") / "model.safetensors").write_bytes(b"1")
    assert "cannot be loaded" in refusal("bart", tmp_path / "cut")


def test_a_bert_may_lack_its_pooler(tmp_path):
    """Nothing here reads it."""
    BertModel(BertConfig(**ENCODER), add_pooling_layer=False).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert load("bert", tmp_path)[0].pooler is not None


def test_tokenizers_and_positions_that_do_not_fit_are_refused(tmp_path):
    said = refusal("bart", bart(tmp_path / "rows", rows=12))
    assert "has the token 13, the model 12 embeddings" in said
    bart(tmp_path / "bart")
    assert "reads 40 tokens, not 41" in refusal("bart", tmp_path / "bart", positions=41)
    load("bart", tmp_path / "bart", positions=40)
    (bart(tmp_path / "none") / "tokenizer.json").unlink()
    assert "tokenizer" in refusal("bart", tmp_path / "none")


@pytest.mark.parametrize("offset", [0, 2])
def test_a_model_is_believed_to_read_as_many_tokens_as_it_reads(tmp_path, offset):
    """RoBERTa's first positions are those of its padding, BERT's are not."""
    kind = RobertaModel if offset else BertModel
    config = kind.config_class(**ENCODER, max_position_embeddings=12)
    model = kind(config, add_pooling_layer=False)
    most = positions_of(model)
    assert most == 12 - offset
    assert model(torch.full((1, most), 5)).last_hidden_state.isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, most + 1), 5))


FILES = ("config.json", "generation_config.json")


@pytest.mark.parametrize(
    ("files", "token", "value"),
    [
        (FILES[1:], "decoder_start_token_id", 4),
        (FILES[1:], "decoder_start_token_id", None),
        (FILES[:1], "decoder_start_token_id", None),
        (FILES, "decoder_start_token_id", None),
        (FILES[:1], "eos_token_id", 1),  # the padding
        (FILES, "eos_token_id", 4),  # the tokenizer's is 2
        (FILES[:1], "pad_token_id", 2),
    ],
)
def test_files_that_do_not_agree_on_start_end_and_padding_are_refused(
    tmp_path, files, token, value
):
    """Or the model would be trained with one, and write with the other."""
    bart(tmp_path)
    for file in files:
        edit(tmp_path, file, **{token: value})
    assert f"{token} is " in (said := refusal("bart", tmp_path)) and "make them agree" in said


# ---- generation


def settings(model, length=20, own=None, **given):
    model.generation_config = GenerationConfig(**own or {})
    generation(model, length, **given)
    return model.generation_config


def test_generation_honours_what_defines_a_models_summaries_where_nothing_is_given(tmp_path):
    model, _ = load("bart", bart(tmp_path))
    own = {"num_beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "min_length": 4}
    own |= {"forced_bos_token_id": 0, "max_length": 12, "repetition_penalty": 1.5}
    found = settings(model, own=own)
    assert {name: getattr(found, name) for name in own} == own
    found = settings(model, own=own, num_beams=1, length_penalty=None, max_length=15)
    assert (found.num_beams, found.length_penalty, found.max_length) == (1, 2.0, 15)


def test_generation_sets_the_rest(tmp_path, capsys):
    model, _ = load("bart", bart(tmp_path))
    source = torch.tensor([[0, 4, 5, 2], [0, 6, 7, 2]])
    model.generation_config.update(num_beams=2, max_length=9)
    generation(model, 9)
    wanted = model.generate(source)
    rest = {"num_return_sequences": 2, "do_sample": True, "temperature": 9.0, "max_time": 1e-9}
    rest |= {"return_dict_in_generate": True, "output_scores": True, "output_attentions": True}
    model.generation_config.update(**rest, use_cache=False, top_k=1)
    generation(model, 9)
    said = capsys.readouterr().err
    assert "settings these are not used: do_sample" in said and "num_beams" not in said
    assert torch.equal(model.generate(source), wanted) and len(wanted) == 2
    generation(model, 9)  # now its settings are those
    assert not capsys.readouterr().err


def test_generation_lengths(tmp_path, capsys):
    model, _ = load("bart", bart(tmp_path))
    assert settings(model, 25).max_length == 25  # a model without a length has that of its run
    assert settings(model, 25, own={"max_length": 12}).max_length == 12
    assert settings(model, 99).max_length == 40  # as many as it has positions
    assert settings(model, 25, own={"min_length": 30}).min_length == 25
    assert "min_length 30 is lowered to 25" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--min-length is 30, above the longest output, 25"):
        settings(model, 25, min_length=30)


def test_of_new_tokens_and_length_generate_takes_what_is_given(tmp_path):
    model, _ = load("bart", bart(tmp_path))
    forever = dict(decoder_start_token_id=2, eos_token_id=2, pad_token_id=1, bad_words_ids=[[2]])
    for given, length in (({}, 7), ({"max_length": 4}, 4)):  # the start is no new token
        settings(model, own=forever | {"max_new_tokens": 6}, **given)
        assert model.generate(torch.tensor([[0, 4, 5, 2]])).shape[1] == length
    assert settings(model, own={"min_new_tokens": 6}, min_length=0).min_new_tokens is None
