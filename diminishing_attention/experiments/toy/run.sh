#!/usr/bin/env bash
# toy, made to repeat: which function, and BERTSum. In the repository's top folder: diminishing_attention/experiments/toy/run.sh
# (an hour or two on one core; a stopped script goes on where it was)
set -euo pipefail
OUT=diminishing_attention/experiments/toy R=runs/toy
run() { python -m "diminishing_attention.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/pg-$s --preset repetition --seed $s --resume
  C=(--init $R/pg-$s --steps 150 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control, "PG, as long"
  run train --out $R/cov-$s "${C[@]}" --coverage True
  for d in dim dydim; do
    run train --out $R/$d-$s "${C[@]}" --diminishing $d
    run train --out $R/${d}_renormalised-$s "${C[@]}" --diminishing $d --renormalise True
  done
  for f in sqrt power; do run train --out $R/dim_$f-$s "${C[@]}" --diminishing dim --f $f; done
  run train --out $R/dydim_swapped-$s "${C[@]}" --diminishing dydim --f1 log --f2 sqrt
  run train --out $R/dydim_log_power-$s "${C[@]}" --diminishing dydim --f1 log --f2 power
done
run evaluate $R/more-? $R/pg-? $R/cov-? $R/dim-? $R/dydim-? --limit 300 --csv $OUT/toy.csv
run evaluate $R/more-? $R/dim-? $R/dim_*-? $R/dydim-? $R/dydim_*-? --limit 300 --csv $OUT/toy_functions.csv
run experiments.figures --run $R/dim-0 --out $OUT   # figure_1 and attention_map

# BERTSum with a new small encoder.
D=(--data toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5 --resume)
run train --out $R/ext --preset bertsum-ext "${D[@]}"
run train --out $R/abs --init $R/ext --model bertsum-abs --learning-rate 0.03 --resume
for s in 0 1 2; do
  for d in none dim dydim; do
    run train --out $R/bert-$d-$s --init $R/abs --steps 150 --learning-rate 0.0005 --warmup 0 --encoder-learning-rate 0.0001 \
      --encoder-warmup 0 --seed $s --diminishing $d --resume
  done
done
run evaluate $R/bert-none-? $R/abs $R/bert-dim-? $R/bert-dydim-? --limit 300 --csv $OUT/toy_bertsum.csv
