#!/usr/bin/env bash
# toy, made to repeat: which function. In the repository's top folder: diminishing_attention/experiments/toy/run.sh
# (an hour on one core; a stopped script goes on where it was)
set -euo pipefail
OUT=diminishing_attention/experiments/toy R=runs/toy
run() { python -m "diminishing_attention.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/pg-$s --preset repetition --seed $s --resume
  C=(--init $R/pg-$s --steps 150 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/cov-$s "${C[@]}" --coverage True
  for d in dim dydim; do
    run train --out $R/$d-$s "${C[@]}" --diminishing $d
    run train --out $R/${d}_renormalised-$s "${C[@]}" --diminishing $d --renormalise True
  done
  run train --out $R/dim_sqrt-$s "${C[@]}" --diminishing dim --f sqrt
  run train --out $R/dydim_swapped-$s "${C[@]}" --diminishing dydim --f1 log --f2 sqrt
done
run evaluate $R/more-? $R/pg-? $R/cov-? $R/dim-? $R/dydim-? --limit 300 --csv $OUT/toy.csv --overwrite
run evaluate $R/more-? $R/dim-? $R/dim_*-? $R/dydim-? $R/dydim_*-? --limit 300 --csv $OUT/toy_functions.csv --overwrite
run experiments.figures --out $OUT --overwrite   # figure_1
