#!/usr/bin/env bash
# The toy corpus, where the truth is known. In the repository's top folder: l0drop/experiments/toy/run.sh (an hour a seed)
set -euo pipefail
OUT=l0drop/experiments/toy R=runs/l0-toy
run() { python -m "l0drop.$1" "${@:2}"; }
s=0
run train --out $R/base-$s --l0drop none --seed $s --resume
F=(--init $R/base-$s --steps 400 --seed $s --resume)
run train --out $R/longer-$s "${F[@]}"
for l in 0.5 0.8; do run train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
run train --out $R/base-1600-$s --l0drop none --steps 1600 --seed $s --resume
run train --out $R/scratch-$s --l0drop output --l0-weight 0.5 --l0-start 1000 --steps 1600 --seed $s --resume
RUNS=($R/longer-$s $R/l0-0.5-$s $R/l0-0.8-$s $R/base-1600-$s $R/scratch-$s)
run evaluate "${RUNS[@]}" --predictions $R/out-$s
python -m shared.score $R/out-$s/*.jsonl --minus longer base-1600 --csv $OUT/toy_$s.csv
run experiments.kinds $R/l0-0.5-$s $R/l0-0.8-$s $R/scratch-$s --csv $OUT/kinds.csv
