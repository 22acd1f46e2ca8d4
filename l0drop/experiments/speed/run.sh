#!/usr/bin/env bash
# Speed at the paper's sizes, random weights, an idle machine, hours. In the repository's top folder. pip install ctranslate2
set -euo pipefail
OUT=l0drop/experiments/speed
python -m l0drop.experiments.benchmark --shapes 400 --repeats 9 --csv $OUT/benchmark_400.csv
python -m l0drop.experiments.benchmark --shapes 2048 --repeats 7 --csv $OUT/benchmark_2048.csv \
  --sides generate expanded shared "shared, pruned" "shared, pruned, packed" "shared, pruned, int8" "CTranslate2, float32" "CTranslate2, int8"
