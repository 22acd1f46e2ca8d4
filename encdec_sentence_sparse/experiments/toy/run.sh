#!/usr/bin/env bash
# Long toy stories (Tables 2, 3, 5, 6; Figures 2, 4). In the repository's top folder:
#   encdec_sentence_sparse/experiments/toy/run.sh       two CPU hours a seed on one core; a stopped script goes on where it was
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/toy R=runs/sparse-toy DATA=toy:min_sentences=28,max_sentences=32,names=20
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
decode() { # RUN MODE r [FLAG ...]: 250 test stories under a selection
  run predict $R/$1-$s --data $DATA --limit 250 --mode $2 --r $3 --out $R/predictions/$1-$s.$2.$3${5:-}.jsonl --overwrite "${@:4}"
}
for s in ${SEEDS:-0 1 2}; do
  run train --out $R/base-$s --data $DATA --vocabulary 1000 --width 128 --feed-forward 512 --dropout 0 --learning-rate 1e-3 \
    --steps 6000 --patience 4 --warmup 200 --seed $s --resume
  C=(--steps 300 --warmup 50 --patience 0 --seed $s --resume)
  run train --task kl --out $R/kl-$s --init $R/base-$s "${C[@]}"
  I=(--task integrated --init $R/kl-$s --learning-rate 3e-4 "${C[@]}")
  run train --out $R/apx-$s "${I[@]}" --select approx --r 5
  run train --out $R/idl-$s "${I[@]}" --select ideal --r 5
  run train --out $R/mix-$s "${I[@]}" --select mix --r 5
  run train --out $R/control-$s "${I[@]}" --kl-weight 0 --r 99   # trained equally long, without a selection and the KL term
  for r in 2 10; do run train --out $R/apx-r$r-$s "${I[@]}" --select approx --r $r; done   # other r in training
  for g in ${GAMMAS:-0 0.1 1}; do
    run train --task sparse --gamma $g --out $R/sparse$g-$s --init $R/base-$s --learning-rate 3e-4 "${C[@]}"
    for mode in full ideal random; do decode sparse$g $mode 5 --seed $s; done
  done
  for name in base kl apx control idl mix apx-r2 apx-r10; do decode $name full 5; done
  for r in 5 2 10; do
    for name in kl apx control idl mix apx-r2 apx-r10; do decode $name approx $r; done
    for mode in ideal random model_free; do decode base $mode $r --seed $s; done
    run experiments.mean_key $R/base-$s --data $DATA --limit 250 --r $r --system base.mean_key.r$r \
      --out $R/predictions/base-$s.mean_key.$r.jsonl --overwrite
  done
  for phi in exp relu; do decode base model_free 5 --phi $phi; done
  # pooling in place of the GRU
  run train --task kl --out $R/kl-mean-$s --init $R/base-$s "${C[@]}" --sentence-encoder mean
  run train --task integrated --init $R/kl-mean-$s --learning-rate 3e-4 "${C[@]}" --out $R/apx-mean-$s --select approx --r 5
  for name in kl-mean apx-mean; do
    decode $name full 5
    for r in 5 2; do decode $name approx $r; done
  done
done
python -m shared.score $R/predictions/*.jsonl --csv $OUT/toy.csv --overwrite \
  --minus base.full sparse0.full control.approx.r{2,5,10} kl.approx.r{2,5}
run experiments.figures --out $OUT --scores $OUT/toy.csv
