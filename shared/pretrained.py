"""Models of transformers: `load` gives one that fits, `generation` says how it writes.

What does not fit is refused in one line; nothing is repaired.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

WANTED = {
    "bart": "a BART such as facebook/bart-base",
    "bert": "a BERT such as bert-base-uncased",
    "encoder": "an encoder such as roberta-base",
}
# The settings that define a model's summaries. Those that its files have are kept.
HONOURED = """
    max_length max_new_tokens min_length min_new_tokens
    num_beams early_stopping length_penalty repetition_penalty no_repeat_ngram_size
    bad_words_ids suppress_tokens begin_suppress_tokens sequence_bias
    forced_bos_token_id forced_eos_token_id bos_token_id eos_token_id pad_token_id
    decoder_start_token_id exponential_decay_length_penalty renormalize_logits remove_invalid_values
""".split()
# Settings that change no summary: nothing is said where they are left out.
SILENT = ("transformers_version", "use_cache", "return_dict_in_generate", "num_return_sequences")


def load(kind: str, name: str | Path, positions: int = 0, model_class=None) -> tuple:
    """A model with float32 weights in eval mode, and its tokenizer.

    None of the model's own code is run. The tokenizer reads a "</s>" in a text as text
    (`split_special_tokens`); so decode with `skip_special_tokens=True`.

    Args:
        kind: "bart" (with its language model head), "bert", or "encoder": any encoder.
        name: hub name or folder.
        positions: tokens that it has to read.
        model_class: class of the model; default: that of transformers.
    Raises:
        ValueError: it is not here, or does not fit; says what it is, and what is wanted.
    """
    import transformers

    name = str(name)
    if model_class is None and kind == "bart":
        model_class = transformers.AutoModelForSeq2SeqLM
    elif model_class is None:
        model_class = transformers.AutoModel
    transformers.utils.logging.set_verbosity_error()  # what is missing is judged below
    transformers.utils.logging.disable_progress_bar()
    with one_line(name):
        sizes = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    model_type = sizes.model_type
    if kind not in ("encoder", model_type):
        raise ValueError(f"{name} is a model of the kind {model_type}; wanted is {WANTED[kind]}")
    with one_line(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            name, split_special_tokens=True, trust_remote_code=False
        )
        model, report = model_class.from_pretrained(
            name, dtype="float32", output_loading_info=True, trust_remote_code=False
        )
    bad = [str(key) for key in (*report["missing_keys"], *report["mismatched_keys"])]
    bad = [key for key in bad if "pooler" not in key]
    bad += [key for key, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if bad:
        raise ValueError(
            f"{name}: the weight {min(bad)} is missing, of another size or NaN: get the model again"
        )
    check_tokenizer(name, model, tokenizer)
    if kind == "bart":
        check_special_tokens(name, model, tokenizer)
    elif model.config.is_encoder_decoder:
        model = model.get_encoder()
    most = positions_of(model)
    if positions > most:
        remedy = "lower --max-source or --max-target" if kind == "bart" else "take another"
        raise ValueError(f"{name} reads {most} tokens, not {positions}: {remedy}")
    return model.eval(), tokenizer


@contextlib.contextmanager
def one_line(name: str) -> Iterator[None]:
    """Make one ValueError of what a library raises while it loads `name`."""
    try:
        yield
    except Exception as error:  # transformers, the hub, safetensors have types of their own
        remedy = "get or make it again"
        if not Path(name).exists():
            remedy = (
                f"there is no folder {name!r}; if it is a name of the hub: HF_HUB_OFFLINE=0 hf "
                f"download {name}"
            )
        said = " ".join(str(error).split())[:160]
        raise ValueError(f"{name} cannot be loaded ({said}): {remedy}") from None


def check_tokenizer(name: str, model, tokenizer) -> None:
    """ValueError for a tokenizer that the packages cannot use as it is."""
    rows = model.get_input_embeddings().weight.size(0)
    last = max(tokenizer.get_vocab().values(), default=0)
    pad = tokenizer.pad_token_id
    ends, text = tokenizer("").input_ids, tokenizer("a").input_ids
    faults = {
        "gives no offsets of its tokens: save one with a tokenizer.json": not tokenizer.is_fast,
        # Without tokenizer.json transformers makes one up.
        "has no words: tokenizer.json is missing": len(tokenizer) <= len(tokenizer.all_special_ids),
        f"has the token {last}, the model {rows} embeddings: resize_token_embeddings": last >= rows,
        "has no padding token: set tokenizer.pad_token": pad is None,
        "puts no start before a text and no end behind it": ends != [text[0], text[-1]],
        f"has start and end {ends} and padding {pad}: they must differ": len({*ends, pad}) < 3,
    }
    for fault, is_there in faults.items():
        if is_there:
            raise ValueError(f"{name}: its tokenizer {fault}")
    own = tokenizer.special_tokens_map.values()
    if given := [token for token in tokenizer.all_special_tokens if token not in own]:
        print(f"{name}: {', '.join(given)} in a text are read as text", file=sys.stderr)


def check_special_tokens(name: str, model, tokenizer) -> None:
    """ValueError where the files of a BART do not agree on start, end and padding of a summary."""
    tokens = {
        "decoder_start_token_id": None,  # the tokenizer knows none
        "eos_token_id": tokenizer("").input_ids[-1],
        "pad_token_id": tokenizer.pad_token_id,
    }
    for token, by_tokenizer in tokens.items():
        values = [getattr(part, token, None) for part in (model.config, model.generation_config)]
        agree = by_tokenizer in (None, values[0]) and values[0] == values[1]
        if not agree or values[0] is None:
            raise ValueError(
                f"{name}: {token} is {values[0]} in config.json, {values[1]} in its generation "
                f"settings and {by_tokenizer} for its tokenizer: make them agree"
            )


def positions_of(model) -> int:
    """How many tokens a model can read."""
    most = getattr(model.config, "max_position_embeddings", 10**6)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    # RoBERTa's first positions are those of its padding.
    padding = getattr(table, "padding_idx", None)
    return most if padding is None else most - padding - 1


def generation(model, max_length: int, /, **given) -> None:
    """Set how a model generates: by its own HONOURED settings, one sequence a source, no sampling.

    Args:
        max_length: the longest output in tokens, the start token included, where the model's
            files have none.
        given: settings that win over the model's own; None = not given.
    Raises:
        ValueError: a given min_length is above the longest output.
    """
    from transformers import GenerationConfig

    own = model.generation_config
    values = {name: getattr(own, name, None) for name in HONOURED}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given.keys() & {"max_length", "min_length"}:
        values[name.replace("length", "new_tokens")] = None  # `generate` would prefer it
    values |= given
    values["max_length"] = min(values["max_length"] or max_length, positions_of(model))
    least, most = values["min_length"] or 0, values["max_length"]
    if least > most and given.get("min_length"):
        raise ValueError(f"--min-length is {least}, above the longest output, {most}")
    if least > most:
        print(f"the model's min_length {least} is lowered to {most}", file=sys.stderr)
        values["min_length"] = most
    ignored = sorted(own.to_diff_dict().keys() - {*HONOURED, *SILENT})
    if ignored := [name for name in ignored if not name.startswith(("output_", "_"))]:
        names = ", ".join(ignored)
        print(f"of the model's generation settings these are not used: {names}", file=sys.stderr)
    values = {name: value for name, value in values.items() if value is not None}
    model.generation_config = GenerationConfig(**values)
