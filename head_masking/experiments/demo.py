"""The end of the README's demo: masks by the tagger against none, and one story told right because of them.

python -m head_masking.experiments.demo runs/hm runs/hm-tagger
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load

from ..decode import collect, decode, encode, find_heads, read_documents, settings_of, tag
from ..evaluate import compare, score
from ..labels import Labels
from ..loading import load_run
from ..run import Positive, check_fields, one_line_errors, read_flags


@dataclass
class Options:
    """The command line."""

    summarizer: tyro.conf.Positional[Path]  # the run to be masked
    tagger: tyro.conf.Positional[Path]  # the run that says what may be seen; its data are tested
    limit: Positive = 100  # test stories
    least: float = 10.0  # points of ROUGE-1 that the masks must gain


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.demo", description=__doc__)
    check_fields(options)
    run, tagger = load_run(options.summarizer, "summarizer"), load_run(options.tagger, "tagger")
    examples = load(tagger.config.data, "test", options.limit)
    tagged = {"tagger": tag(tagger, [example.source for example in examples])}
    documents = read_documents(run, examples, Labels(min_run=tagger.config.min_run), tagged)
    settings = settings_of("plain", tagged, find_heads("top", run.model), ["oracle"])
    decoded = decode(run, documents, settings, encode(run.model, documents), num_beams=1)
    plain, oracle, masked = collect(decoded, settings, examples).values()
    scores = [score(texts, examples) for texts in (plain, masked, oracle)]
    right = [i for i, example in enumerate(examples) if masked[i] == example.target]
    shown = next((i for i in right if plain[i] != masked[i]), 0)
    words = zip(documents[shown].offsets, documents[shown].keep["system:tagger"], strict=True)
    kept = "".join(examples[shown].source[slice(*place)] + " " for place, is_kept in words if is_kept)
    print("story:    ", examples[shown].source)
    print("may see:  ", kept)
    print("no masks: ", plain[shown])
    print("masked:   ", masked[shown])
    print("reference:", examples[shown].target)
    means = [values["rouge1"].mean() for values in scores]
    gain = compare(scores[1], scores[0])["difference"]["rouge1"]
    exact = [sum(text == e.target for text, e in zip(texts, examples, strict=True)) for texts in (plain, masked)]
    print(
        f"ROUGE-1 without masks {means[0]:.1f}, by the tagger's {means[1]:.1f}, by the oracle's {means[2]:.1f}; "
        f"{exact[0]} of {len(examples)} summaries exact without masks, {exact[1]} with the tagger's"
    )
    if gain["low"] < options.least or masked[shown] != examples[shown].target:
        raise ValueError("the effect does not show: train longer")


if __name__ == "__main__":
    main()
