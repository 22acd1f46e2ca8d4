"""The data of scitldr/run.sh: FOLDER/abstracts, FOLDER/sentences-data, FOLDER/marked.

python -m head_masking.experiments.scitldr.data SCITLDR FOLDER

The training abstracts are cut in two (1,500 and 492); tested are those of dev. "marked" has, in place of the summary,
the sentences that its source_labels mark.
"""

import random
import sys
from pathlib import Path

from shared.data import load
from shared.run import one_line_errors

from ..samsum.data import cut, pairs, turns, write


def marked(examples):
    picked = [(e, [s for s, is_salient in zip(e.document, e.salient, strict=True) if is_salient]) for e in examples]
    return [{"id": e.id, "document": e.document, "summary": summary} for e, summary in picked if summary]


@one_line_errors
def main(arguments=None):
    source, out = arguments or sys.argv[1:]
    folder, rng = Path(out), random.Random(0)
    (train, validation), test = cut(load(source, "train"), 1500 / 1992), load(source, "validation")
    write(folder / "abstracts", train=pairs(train), validation=pairs(validation), test=pairs(test))
    write(folder / "sentences-data", train=turns(train, 12, rng), validation=turns(validation, 1, rng))
    write(folder / "marked", train=marked(train), validation=marked(validation))


if __name__ == "__main__":
    main()
