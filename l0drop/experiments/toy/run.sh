#!/usr/bin/env bash
# The toy corpus, where the truth is known. In the repository's top folder: l0drop/experiments/toy/run.sh (an hour a seed)
set -euo pipefail
OUT=l0drop/experiments/toy R=runs/l0-toy
run() { python -m "l0drop.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/base-$s --l0drop none --seed $s --resume
  F=(--init $R/base-$s --steps 400 --seed $s --resume)
  run train --out $R/longer-$s "${F[@]}"
  for l in 0.5 0.8; do run train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
  run train --out $R/base-1600-$s --l0drop none --steps 1600 --seed $s --resume
  run train --out $R/scratch-$s --l0drop output --l0-weight 0.5 --l0-start 1000 --steps 1600 --seed $s --resume
  run evaluate $R/longer-$s $R/l0-0.5-$s $R/l0-0.8-$s --csv $OUT/toy_lambda_seed$s.csv
  run evaluate $R/base-1600-$s $R/scratch-$s --json $R/toy_$s.json --csv $OUT/toy_scratch_seed$s.csv
done
run experiments.figures $R/toy_0.json --out $R/figures   # figure_5_kinds
