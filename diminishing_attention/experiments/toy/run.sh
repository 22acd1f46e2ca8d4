#!/usr/bin/env bash
# toy, made to repeat: which function. In the repository's top folder: diminishing_attention/experiments/toy/run.sh
# (an hour on one core; a stopped script goes on where it was)
# The CSV is of commit 55308d3 or before it; the commands now draw batches in another order.
set -euo pipefail
OUT=diminishing_attention/experiments/toy R=runs/toy SEEDS="${SEEDS:-0 1 2}"
run() { python -m "diminishing_attention.$1" "${@:2}"; }
DATA=toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5   # as in the preset
for s in $SEEDS; do
  run train --out $R/pg-$s --preset repetition --seed $s --resume
  C=(--init $R/pg-$s --steps 150 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/cov-$s "${C[@]}" --coverage True
  for d in dim dydim; do
    run train --out $R/$d-$s "${C[@]}" --diminishing $d
    run experiments.controls renormalised train --out $R/${d}_renormalised-$s "${C[@]}" --diminishing $d
  done
  run train --out $R/dim_sqrt-$s "${C[@]}" --diminishing dim --f sqrt
  run train --out $R/dydim_swapped-$s "${C[@]}" --diminishing dydim --f sqrt   # f2 is sqrt, f1 log
done
for s in $SEEDS; do
  for r in {more,pg,cov,dim,dydim,dim_sqrt,dim_renormalised,dydim_swapped,dydim_renormalised}-$s; do
    command=(predict)
    [[ $r == *renormalised* ]] && command=(experiments.controls renormalised predict)
    [ -e $R/out/$r.jsonl ] || run "${command[@]}" $R/$r --data $DATA --limit 300 --out $R/out/$r.jsonl --overwrite
  done
done
run experiments.baselines --data $DATA,count=300 --out $R/out --overwrite
O=$R/out
python -m shared.score $O/*.jsonl --minus more --csv $OUT/toy.csv --overwrite
