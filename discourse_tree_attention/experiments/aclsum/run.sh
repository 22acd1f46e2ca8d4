#!/usr/bin/env bash
# aclsum with predicted trees: Tables 2 and 3 at both sizes. In the repository's top folder, without arguments.
# pip install aclsum; the parser as experiments/parse.py says. Parsing: 15 CPU seconds a paper, an hour. A run: 8 to 20.
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/aclsum
corpus() { python -c "
import json
from pathlib import Path
from shared.data import load
for split, parts in {'train': ['train'], 'validation': ['val', 'test']}.items():
    trees = {path.stem for path in Path('data/aclsum', split).glob('*.dis')}
    papers = [paper for part in parts for paper in load('aclsum', part) if paper.id in trees or not trees]
    rows = ({'id': p.id, 'document': p.document, 'summary': p.summary} for p in papers)
    Path(f'data/aclsum/{split}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))"; }
mkdir -p data/aclsum
corpus
for s in train validation; do python -m $DTA.experiments.parse data/aclsum/$s.jsonl --out data/aclsum/$s || true; done
corpus    # the second time those with a tree: 216 of 250
python -m $DTA.experiments.tables statistics data/aclsum
table $OUT aclsum_edu "0 1 2" data/aclsum
table $OUT aclsum_sentence "0 1 2" data/aclsum --level sentence
table $OUT aclsum_edu_balanced "0 1 2" data/aclsum --balanced True
table $OUT aclsum_sentence_balanced "0 1 2" data/aclsum --level sentence --balanced True
