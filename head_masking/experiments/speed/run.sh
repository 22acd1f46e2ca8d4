#!/usr/bin/env bash
# What masking costs, random weights of BART's shapes, an hour. In the top folder. benchmark.csv holds the three files in one.
set -euo pipefail
OUT=head_masking/experiments/speed
python -m head_masking.experiments.benchmark --shapes bart-base --repeats 25 --csv $OUT/benchmark_base.csv
python -m head_masking.experiments.benchmark --shapes bart-large --batches 1 --repeats 15 --csv $OUT/benchmark_large_1.csv
python -m head_masking.experiments.benchmark --shapes bart-large --batches 4 --repeats 7 --csv $OUT/benchmark_large_4.csv
