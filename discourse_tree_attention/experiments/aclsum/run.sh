#!/usr/bin/env bash
# aclsum with predicted trees: Tables 2 and 3 at both sizes. In the repository's top folder, without arguments.
# pip install aclsum; the parser as experiments/parse.py says. Parsing: 15 CPU seconds a paper, an hour. A run: 8 to 20.
# The CSVs beside it are of commit 55308d3 or before it, with that commit's labels.
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/aclsum U=(--steps ${STEPS:-240})
corpus() { python -c "
import json
from pathlib import Path
from aclsum import ACLSum
for split, parts in {'train': ['train'], 'validation': ['val', 'test']}.items():
    papers = [paper for part in parts for paper in ACLSum(part)]
    short = [[p.summaries[aspect] for aspect in ('challenge', 'approach', 'outcome')] for p in papers]
    rows = ({'id': p.id, 'document': p.get_all_sentences(), 'summary': s} for p, s in zip(papers, short, strict=True))
    Path(f'data/aclsum/{split}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))"; }
mkdir -p data/aclsum
corpus
for s in train validation; do trees data/aclsum/$s.jsonl; done    # 216 of 250 papers
table $OUT aclsum_edu data/aclsum "${U[@]}"
table $OUT aclsum_sentence data/aclsum "${U[@]}" --level sentence
table $OUT aclsum_edu_balanced data/aclsum "${U[@]}" --balanced True
table $OUT aclsum_sentence_balanced data/aclsum "${U[@]}" --level sentence --balanced True
