#!/usr/bin/env bash
# Extractive news, the paper's kind of text: 3 of 11 sentences at a step. In the repository's top folder:
#   encdec_sentence_sparse/experiments/bbc/run.sh DATA BART      half an hour on one core
# DATA: train.jsonl, validation.jsonl, test.jsonl, which head_masking's experiments.bbc.data writes of BBC's articles.
# BART: one that was trained on them, as bart-1/model of head_masking/experiments/bbc/run.sh.
set -euo pipefail
DATA=$1 BART=$2 OUT=encdec_sentence_sparse/experiments/bbc R=runs/sparse-bbc
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
T=(--data "$DATA" --max-source 400 --max-target 224 --batch-size 8 --r 3 --resume)
run train --task kl --model "$BART" --out $R/kl-0 "${T[@]}" --learning-rate 1e-3 --warmup 50 --steps 120 --save-every 60
D=(--data "$DATA" --split test --beam 1 --max-length 160 --no-repeat-ngram-size 3 --overwrite)
for mode in full ideal random; do   # the held-out test set, once; nothing was chosen
  run predict "$BART" "${D[@]}" --mode $mode --r 3 --system base.$mode --out $R/test/base.$mode.jsonl
done
run experiments.mean_key "$BART" "${D[@]}" --r 3 --system base.mean_key --out $R/test/base.mean_key.jsonl
run predict $R/kl-0 "${D[@]}" --r 3 --system kl.approx --out $R/test/kl.approx.jsonl
python -m shared.score $R/test/*.jsonl --csv $OUT/test.csv --overwrite --minus base.full base.mean_key base.random
