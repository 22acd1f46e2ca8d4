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
)

from shared.pretrained import generation, load

TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghij"]


def tokenizer(**special):
    """A tokenizer of single letters, <s> and </s> around each text."""
    own = Tokenizer(
        models.WordLevel({token: n for n, token in enumerate(TOKENS)}, unk_token="<unk>")
    )
    own.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    own.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>") | special
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, **{k: v for k, v in names.items() if v}
    )


def bart(folder, rows=14, change=lambda model: None, **special):
    """Save a small BART, changed by `change`, and its tokenizer."""
    torch.manual_seed(0)
    sizes = {
        f"{side}_{name}": 1
        for side in ("encoder", "decoder")
        for name in ("layers", "attention_heads")
    }
    sizes |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    sizes |= {"vocab_size": rows, "d_model": 8, "max_position_embeddings": 40}
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
    assert {tensor.dtype for tensor in model.state_dict().values()} == {
        torch.float32
    } and not model.training
    ids = read("a</s>b<pad>").input_ids
    assert ids[0] == 0 and ids[-1] == 2 and not {0, 1, 2} & set(ids[1:-1])


def read_by(folder, change=lambda tokenizer: None, **special):
    """What `load` gives for a tokenizer with a change, and the same read from a folder that it was
    saved in.
    """
    theirs = tokenizer(**special)
    change(theirs)
    bart(folder, rows=len(theirs))
    theirs.save_pretrained(folder)
    _, read = load("bart", folder)
    read.save_pretrained(folder / "saved")
    return read, transformers.AutoTokenizer.from_pretrained(folder / "saved")


def test_a_token_given_on_purpose_is_a_token_in_a_text(tmp_path):
    """As its own tokenizer reads it; the five of the model stay text."""
    given = {"additional_special_tokens": ["<doc-sep>", "[speaker1]"]}
    for read in read_by(tmp_path, lambda theirs: theirs.add_special_tokens(given)):
        ids = read("[speaker1]a<doc-sep>b</s>").input_ids
        assert [token for token in ids if token > 13] == read.convert_tokens_to_ids(
            ["[speaker1]", "<doc-sep>"]
        )
        assert ids.count(2) == ids.count(0) == 1


@pytest.mark.parametrize("single", [None, "<s> $A", "$A </s>"])
def test_a_text_has_start_and_end_whatever_its_tokenizer_adds(tmp_path, single):
    def change(theirs):
        ends = [("<s>", 0), ("</s>", 2)]
        processor = single and processors.TemplateProcessing(single=single, special_tokens=ends)
        theirs.backend_tokenizer.post_processor = processor or processors.ByteLevel(
            trim_offsets=False
        )

    for read in read_by(tmp_path, change):
        assert read("ab").input_ids == [0, 4, 5, 2] and read("").input_ids == [0, 2]
        assert read("ab", return_offsets_mapping=True).offset_mapping[1:3] == [(0, 1), (1, 2)]


def test_models_of_another_kind_are_named(tmp_path):
    bert = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    BertModel(bert).save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    assert "is a model of the kind bert; wanted is a BART" in refusal("bart", tmp_path / "bert")
    assert "is a model of the kind bart; wanted is a BERT" in refusal(
        "bert", bart(tmp_path / "bart")
    )
    said = refusal("bart", "no/such")
    assert (
        "there is no folder 'no/such'; if it is a name of the hub: HF_HUB_OFFLINE=0 hf download "
        "no/such" in said
    )
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


def test_tokenizers_and_positions_that_do_not_fit_are_refused(tmp_path):
    assert "has the token 13, the model 12 embeddings" in refusal(
        "bart", bart(tmp_path / "rows", rows=12)
    )
    # the model's
    assert load("bart", bart(tmp_path / "nopad", pad_token=None))[1].pad_token == "<pad>"
    gpt = transformers.GPT2Config(vocab_size=len(TOKENS), n_embd=8, n_layer=1, n_head=1)
    transformers.GPT2Model(gpt).save_pretrained(tmp_path / "gpt")
    tokenizer(pad_token=None).save_pretrained(tmp_path / "gpt")
    assert "has no padding token: set tokenizer.pad_token" in refusal("encoder", tmp_path / "gpt")
    assert "reads 40 tokens, not 41" in refusal("bart", tmp_path / "nopad", positions=41)
    load("bart", tmp_path / "nopad", positions=40)
    (bart(tmp_path / "none") / "tokenizer.json").unlink()
    assert "tokenizer" in refusal("bart", tmp_path / "none")


@pytest.mark.parametrize(("own", "start"), [(4, 4), (None, 0)])
def test_the_start_of_a_summary_is_that_of_the_generation_settings_or_bos(tmp_path, own, start):
    bart(tmp_path)
    for file, value in (("generation_config.json", own), ("config.json", own and 5)):
        edit(tmp_path, file, decoder_start_token_id=value)
    model, _ = load("bart", tmp_path)
    assert (
        model.config.decoder_start_token_id
        == model.generation_config.decoder_start_token_id
        == start
    )


# ---- generation


def settings(model, length=20, own=None, **given):
    model.generation_config = GenerationConfig(**own or {})
    generation(model, length, **given)
    return model.generation_config


def test_generation_honours_what_defines_a_models_summaries_where_nothing_is_given(tmp_path):
    model, _ = load("bart", bart(tmp_path))
    own = dict(
        num_beams=3, length_penalty=2.0, no_repeat_ngram_size=3, forced_bos_token_id=0, min_length=4
    )
    found = settings(model, own=own | {"max_length": 30, "repetition_penalty": 1.5})
    assert {name: getattr(found, name) for name in own} == own
    assert (found.max_length, found.repetition_penalty) == (30, 1.5)
    found = settings(
        model, own=own | {"max_length": 12}, num_beams=1, length_penalty=None, max_length=15
    )
    assert (found.num_beams, found.length_penalty, found.max_length) == (1, 2.0, 15)


def test_generation_sets_the_rest(tmp_path, capsys):
    model, _ = load("bart", bart(tmp_path))
    source = torch.tensor([[0, 4, 5, 2], [0, 6, 7, 2]])
    model.generation_config.update(num_beams=2, max_length=9)
    generation(model, 9)
    wanted = model.generate(source)
    rest = dict(
        num_return_sequences=2, do_sample=True, temperature=9.0, return_dict_in_generate=True
    )
    rest |= dict(
        output_scores=True, output_attentions=True, use_cache=False, max_time=1e-9, top_k=1
    )
    model.generation_config.update(**rest)
    generation(model, 9)
    said = capsys.readouterr().err
    assert "settings these are not used: do_sample" in said and "num_beams" not in said
    assert torch.equal(model.generate(source), wanted) and len(wanted) == 2
    generation(model, 9)  # now its settings are those
    assert not capsys.readouterr().err


def test_generation_lengths_in_either_spelling(tmp_path, capsys):
    model, _ = load("bart", bart(tmp_path))
    assert settings(model, 25).max_length == 25  # a model without a length has that of its run
    assert settings(model, 25, own={"max_length": 12}).max_length == 12
    found = settings(model, 25, own={"max_new_tokens": 12, "min_new_tokens": 5})
    assert (found.max_length, found.min_length) == (13, 6)
    assert settings(model, 99).max_length == 40  # as many as it has positions
    assert settings(model, 25, own={"min_length": 30}).min_length == 25
    assert "min_length 30 is lowered to 25" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--min-length is 30, above the longest output, 25"):
        settings(model, 25, min_length=30)
