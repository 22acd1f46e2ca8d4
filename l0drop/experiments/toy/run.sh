#!/usr/bin/env bash
# The demo's toy stories, pruned with and without D4: how much attention do pruned encodings receive? In the repository's top folder:
#   l0drop/experiments/toy/run.sh        ten CPU minutes; figure_7.csv of each run has the share in its last column
set -euo pipefail
R=runs/l0drop-toy
run() { python -m "l0drop.$1" "${@:2}"; }
run train --out $R/base --l0drop none --vocabulary 600 --steps 600 --save-every 600 --resume \
  --data toy:min_sentences=8,max_sentences=8,names=12,min_facts=2,max_facts=2,other_facts=2
for hidden in False True; do
  run train --out $R/l0-$hidden --init $R/base --steps 300 --l0drop output --target-sparsity 0.6 --mask-closed-in-training $hidden --resume
  run experiments.figures --run $R/l0-$hidden --baseline $R/base --out $R/figures-$hidden --limit 100
done
