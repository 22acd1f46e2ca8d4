"""Models of transformers as people have them: one place that loads them, and one that says how they
generate.
"""

import sys
import tempfile
from pathlib import Path

WANTED = {
    "bart": "a BART such as facebook/bart-base",
    "bert": "a BERT such as bert-base-uncased",
    "encoder": "an encoder such as roberta-base",
}
# Of a model's own generation settings, those that define its summaries; lengths are read in
# `generation`.
HONOURED = """
    num_beams early_stopping length_penalty repetition_penalty no_repeat_ngram_size
    bad_words_ids suppress_tokens
    begin_suppress_tokens
    forced_bos_token_id forced_eos_token_id bos_token_id eos_token_id pad_token_id sequence_bias
    decoder_start_token_id exponential_decay_length_penalty renormalize_logits remove_invalid_values
""".split()
LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
# not worth a word
SILENT = ("transformers_version", "use_cache", "return_dict_in_generate", "num_return_sequences")


def load(kind: str, name: str | Path, positions: int = 0, model_class=None) -> tuple:
    """A model with float32 weights in eval mode, and its tokenizer; nothing of the model's own code
    is run.

    For the tokenizer a "</s>" in a text is text, as are its other tokens of its own; a token that
    it was given on purpose, such as "<doc-sep>", is one. Every text gets its start and end.

    Args:
        kind, name: "bart" (with its language model head), "bert", or "encoder": any encoder; hub
            name or folder.
        positions: tokens that it has to read.
        model_class: class of the model; default: that of transformers.
    Raises:
        ValueError: it is not here, or unfit; says what it is, what is wanted, and how to get that.
    """
    import transformers
    from transformers import AutoConfig, AutoTokenizer

    name, is_bart = str(name), kind == "bart"
    model_class = model_class or getattr(
        transformers, "AutoModelForSeq2SeqLM" if is_bart else "AutoModel"
    )
    transformers.utils.logging.set_verbosity_error()  # what is missing is judged below
    transformers.utils.logging.disable_progress_bar()
    try:
        found = AutoConfig.from_pretrained(name, trust_remote_code=False).model_type
        if is_wanted := kind in ("encoder", found):
            tokenizer = AutoTokenizer.from_pretrained(
                name, trust_remote_code=False, split_special_tokens=True
            )
            options = {"dtype": "float32", "trust_remote_code": False, "output_loading_info": True}
            model, report = model_class.from_pretrained(name, **options)
    # transformers, the hub, safetensors and tokenizers raise types of their own
    except Exception as error:
        absent = (
            f"there is no folder {name!r}; if it is a name of the hub: HF_HUB_OFFLINE=0 hf "
            f"download {name}"
        )
        remedy = "get or make it again" if Path(name).exists() else absent
        raise ValueError(
            f"{name} cannot be loaded ({' '.join(str(error).split())[:160]}): {remedy}"
        ) from None
    if not is_wanted:
        raise ValueError(f"{name} is a model of the kind {found}; wanted is {WANTED[kind]}")
    missing = [
        str(key)
        for key in (*report["missing_keys"], *report["mismatched_keys"])
        if "pooler" not in str(key)
    ]
    missing += [key for key, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if missing:
        raise ValueError(
            f"{name}: the weight {min(missing)} is missing, of another size or NaN: get the model "
            f"again"
        )
    check_tokenizer(name, model, tokenizer)
    if kind == "encoder" and model.config.is_encoder_decoder:
        model = model.get_encoder()
    if positions > (most := positions_of(model)):
        remedy = "lower --max-source or --max-target" if is_bart else "take another"
        raise ValueError(f"{name} reads {most} tokens, not {positions}: {remedy}")
    if is_bart:
        set_special_tokens(name, model)
    add_ends(model, tokenizer)
    return model.eval(), keep_given_tokens(tokenizer)


def add_ends(model, tokenizer) -> None:
    """A text gets the start and end that the model knows, where the tokenizer's file does not add
    both.
    """
    from tokenizers import processors

    is_bart, own, backend = (
        model.config.model_type == "bart",
        tokenizer("").input_ids,
        tokenizer.backend_tokenizer,
    )
    names = ("bos_token_id", "eos_token_id") if is_bart else ("cls_token_id", "sep_token_id")
    ids = [getattr(model.config if is_bart else tokenizer, name) for name in names]
    if None in ids or set(ids) <= set(own):  # XLNet has both at the end
        return
    start, end = tokenizer.convert_ids_to_tokens(ids)
    ends = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, ids[0]), (end, ids[1])]
    )
    # of what it adds none stays
    before = [] if own or not backend.post_processor else [backend.post_processor]
    backend.post_processor = processors.Sequence([*before, ends])


def keep_given_tokens(tokenizer):
    """The tokenizer, for which the special tokens that it was given beyond its own ones are tokens
    in a text.
    """
    from transformers import AutoTokenizer

    own = {token for token in tokenizer.special_tokens_map.values() if isinstance(token, str)}
    given = [
        token
        for token in tokenizer.added_tokens_decoder.values()
        if token.special and token.content not in own
    ]
    if not given:
        return tokenizer
    for token in given:
        token.special = False
    tokenizer.add_tokens(given)
    # what splits a text is made when a tokenizer is read
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def check_tokenizer(name, model, tokenizer) -> None:
    """ValueError for a tokenizer that the packages cannot use; it takes the model's padding where
    it has none.
    """
    rows, pad = (
        model.get_input_embeddings().weight.size(0),
        getattr(model.config, "pad_token_id", None),
    )
    if tokenizer.pad_token_id is None and pad is not None and pad < len(tokenizer):
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
    last = max(tokenizer.get_vocab().values(), default=0)
    wrong = {
        "gives no offsets of its tokens: save one with a tokenizer.json beside the "
        "model": not tokenizer.is_fast,
        # transformers makes one up where its file is missing
        "has no words: tokenizer.json is missing; get it again": len(tokenizer)
        <= len(tokenizer.all_special_tokens),
        f"has the token {last}, the model {rows} embeddings: resize_token_embeddings and save "
        f"it": last >= rows,
        "has no padding token: set tokenizer.pad_token and save it": tokenizer.pad_token_id is None,
    }
    if why := [why for why, is_wrong in wrong.items() if is_wrong]:
        raise ValueError(f"{name}: its tokenizer {why[0]}")


def set_special_tokens(name, model) -> None:
    """Make configuration and generation settings agree on start, end and padding of a summary;
    ValueError: none.
    """
    for token, other in (
        ("decoder_start_token_id", "bos_token_id"),
        ("eos_token_id",) * 2,
        ("pad_token_id",) * 2,
    ):
        parts = ((model.generation_config, token), (model.config, token), (model.config, other))
        values = [
            value for part, field in parts if (value := getattr(part, field, None)) is not None
        ]
        if not values:
            raise ValueError(f"{name} has no {token} in its config.json: add it")
        setattr(model.config, token, values[0][0] if isinstance(values[0], list) else values[0])
        setattr(model.generation_config, token, values[0])


def positions_of(model) -> int:
    """How many tokens a model can read; RoBERTa's first positions are those of its padding."""
    # XLNet says -1
    most = max(getattr(model.config, "max_position_embeddings", None) or 0, 0) or 10**6
    return most - model.config.pad_token_id - 1 if "roberta" in model.config.model_type else most


def generation(model, max_length: int, /, **given) -> None:
    """Set how a model generates: by its own HONOURED settings and lengths, one sequence a source,
    no sampling.

    `max_length` is the longest output in tokens, the start token included, where the model's files
    have none; what is `given` wins, max_length= among it, None = not given. ValueError: a given
    min_length above max_length.
    """
    from transformers import GenerationConfig

    own = model.generation_config
    values = {name: getattr(own, name, None) for name in HONOURED}
    for side, default in (("max", max_length), ("min", 0)):
        new = getattr(own, f"{side}_new_tokens", None)  # does not count the start token
        values[f"{side}_length"] = (
            getattr(own, f"{side}_length", None) if new is None else new + 1
        ) or default
    values |= {name: value for name, value in given.items() if value is not None}
    values["max_length"] = min(values["max_length"], positions_of(model))
    least, most = values["min_length"], values["max_length"]
    if least > most:
        if given.get("min_length"):
            raise ValueError(f"--min-length is {least}, above the longest output, {most}")
        print(f"the model's min_length {least} is lowered to {most}", file=sys.stderr)
        values["min_length"] = most
    others = sorted(own.to_diff_dict().keys() - {*HONOURED, *LENGTHS, *SILENT})
    if others := [name for name in others if not name.startswith(("output_", "_"))]:
        print(
            f"of the model's generation settings these are not used: {', '.join(others)}",
            file=sys.stderr,
        )
    model.generation_config = GenerationConfig(
        **{name: value for name, value in values.items() if value is not None}
    )
