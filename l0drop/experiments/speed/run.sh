#!/usr/bin/env bash
# Speed at the paper's sizes, random weights, two CPU hours. In the repository's top folder:
#   l0drop/experiments/speed/run.sh
# CTranslate2's sides need l0drop/experiments/benchmark.txt. QUICK=--quick: seconds; does it run?
set -euo pipefail
OUT=${QUICK:+runs/}l0drop/experiments/speed
for length in 100 400 2048; do
  python -m l0drop.experiments.benchmark --lengths $length --overwrite ${QUICK:-} --csv $OUT/benchmark_$length.csv
done
python -m l0drop.experiments.benchmark --lengths 100 --precision bf16 --overwrite ${QUICK:-} --csv $OUT/benchmark_100_bf16.csv
python -m l0drop.experiments.figures --speed $OUT/benchmark_{100,400,2048}.csv --out $OUT
