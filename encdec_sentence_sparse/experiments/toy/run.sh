#!/usr/bin/env bash
# Long toy stories (Tables 2, 3, 5, 6; Figures 2, 4, 8). In the repository's top folder:
#   encdec_sentence_sparse/experiments/toy/run.sh       two CPU hours a seed on one core; a stopped script goes on where it was
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/toy R=runs/sparse-toy
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/base-$s --data toy:min_sentences=28,max_sentences=32,names=20 --vocabulary 1000 --width 128 \
    --feed-forward 512 --dropout 0 --learning-rate 1e-3 --steps 6000 --patience 4 --warmup 200 --seed $s --resume
  C=(--steps 300 --warmup 50 --patience 0 --seed $s --resume)
  run train --task kl --out $R/kl-$s --init $R/base-$s "${C[@]}"
  I=(--task integrated --init $R/kl-$s --learning-rate 3e-4 "${C[@]}")
  run train --out $R/apx-$s "${I[@]}" --select approx --r 5
  run train --out $R/idl-$s "${I[@]}" --select ideal --r 5
  run train --out $R/mix-$s "${I[@]}" --select mix --mix-steps 300 --r 5
  run train --out $R/control-$s "${I[@]}" --kl-weight 0 --r 99   # trained equally long, without a selection and the KL term
  for g in 0 0.1 1; do run train --task sparse --out $R/sparse$g-$s --init $R/base-$s --learning-rate 3e-4 "${C[@]}" --gamma $g; done
  E=(--limit 250 --seed $s --predictions $R/predictions --overwrite)
  run evaluate $R/{base,kl,apx,control,idl,mix,sparse0,sparse0.1,sparse1}-$s --r 5 2 10 "${E[@]}"
  # r in training, and pooling in place of the GRU
  for r in 2 10; do run train --out $R/apx-r$r-$s "${I[@]}" --select approx --r $r; done
  run evaluate $R/{apx-r2,apx-r10}-$s --modes approx --r 5 2 10 "${E[@]}"
  run train --task kl --out $R/kl-mean-$s --init $R/base-$s "${C[@]}" --sentence-encoder mean
  run train --task integrated --init $R/kl-mean-$s --learning-rate 3e-4 "${C[@]}" --out $R/apx-mean-$s --select approx --r 5
  run evaluate $R/{kl,apx}-mean-$s --modes approx --r 5 2 "${E[@]}"
done
python -m shared.score $R/predictions/*.jsonl --csv $OUT/toy.csv --overwrite \
  --minus base.full sparse0.full control.approx.r{2,5,10} kl.approx.r{2,5}
run experiments.measures $R/base-0 --limit 250 --map $R/map.json
run experiments.figures --out $OUT --scores $OUT/toy.csv --map $R/map.json --title "Figure 8: which sentences each step reads"
