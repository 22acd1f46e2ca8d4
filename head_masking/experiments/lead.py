"""The first three sentences, or turns, of each document: what a summariser must beat. Rows for `shared.score`.

python -m head_masking.experiments.lead DATA > lead.jsonl && python -m shared.score lead.jsonl --csv lead.csv
"""

import json
import sys

from shared.data import in_sentences, load

for example in in_sentences(load(sys.argv[1], "test")):
    row = {"id": example.id, "prediction": "\n".join(example.document[:3]), "references": example.references}
    print(json.dumps(row | {"system": "lead-3", "seed": 0}))
