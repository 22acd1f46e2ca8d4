#!/usr/bin/env bash
# Figure 1 and a map like Figures 5 to 8, drawn from the README's demo runs; one seed. In the repository's top folder:
#   encdec_sentence_sparse/experiments/demo/run.sh       four CPU minutes
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/demo R=runs
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
run train --out $R/sparse --vocabulary 500 --feed-forward 128 --dropout 0 --steps 1000 --resume \
  --data toy:min_sentences=8,max_sentences=8,names=12,min_facts=2,max_facts=2,other_facts=1,repetition=0
for g in 0.1 1; do
  run train --task sparse --gamma $g --init $R/sparse --out $R/gamma-$g --steps 150 --warmup 20 --learning-rate 1e-3 --resume
done
run experiments.measures $R/sparse $R/gamma-0.1 $R/gamma-1 --limit 100 --csv $OUT/figure_1.csv --overwrite
run experiments.measures $R/sparse --limit 2 --map $OUT/attention_map.png
run experiments.figures --out $OUT --curves $OUT/figure_1.csv
