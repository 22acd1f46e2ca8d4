#!/usr/bin/env bash
# Long toy stories (Tables 2, 3, 5, 6; Figures 1, 2, 4, 8). In the repository's top folder:
#   encdec_sentence_sparse/experiments/toy/run.sh       two CPU hours a seed on one core; a stopped script goes on where it was
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/toy R=runs/sparse-toy
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/base-$s --data toy:min_sentences=28,max_sentences=32,names=20 --batch-size 16 --steps 6000 --save-every 250 \
    --patience 4 --warmup 200 --seed $s --resume
  C=(--steps 300 --warmup 50 --patience 0 --seed $s --resume)
  run train --task kl --out $R/kl-$s --init $R/base-$s "${C[@]}"
  I=(--task integrated --init $R/kl-$s --learning-rate 3e-4 "${C[@]}")
  run train --out $R/apx-$s "${I[@]}" --select approx --r 5
  run train --out $R/idl-$s "${I[@]}" --select ideal --r 5
  run train --out $R/mix-$s "${I[@]}" --select mix --mix-steps 300 --r 5
  run train --out $R/control-$s "${I[@]}" --kl-weight 0 --r 99   # as long, without a selection and without the KL term
  for g in 0 0.1 1; do run train --task sparse --out $R/sparse$g-$s --init $R/base-$s --learning-rate 3e-4 "${C[@]}" --gamma $g; done
  E=(--limit 250 --seed $s --predictions $R/predictions_$s)
  run evaluate $R/{base,kl,apx,control,idl,mix,sparse0,sparse0.1,sparse1}-$s --r 5 2 10 "${E[@]}" --csv $OUT/toy_$s.csv
  # r in training, and pooling in place of the GRU
  for r in 2 10; do run train --out $R/apx-r$r-$s "${I[@]}" --select approx --r $r; done
  run evaluate $R/{apx-r2,apx-r10}-$s --modes approx --r 5 2 10 "${E[@]}" --csv $OUT/toy_r_$s.csv
  for k in mean attention; do
    run train --task kl --out $R/kl-$k-$s --init $R/base-$s "${C[@]}" --sentence-encoder $k
    run train --task integrated --init $R/kl-$k-$s --learning-rate 3e-4 "${C[@]}" --out $R/apx-$k-$s --select approx --r 5
    run evaluate $R/{kl,apx}-$k-$s --modes approx --r 5 2 "${E[@]}" --csv $OUT/toy_${k}_$s.csv
  done
done
run experiments.tables $OUT/toy_0.csv $OUT/toy_1.csv $OUT/toy_2.csv
run experiments.figures $OUT/toy_?.csv $OUT/toy_r_?.csv --out $OUT
run experiments.measures $R/{base,sparse0,sparse0.1,sparse1}-0 --limit 250 --json $R/attention.json   # Figure 8 is its map
# Differences of means over seeds, RUN.SYSTEM minus RUN.SYSTEM:
run experiments.difference $R/predictions_{0,1,2} --systems apx.approx.r2 control.approx.r2
