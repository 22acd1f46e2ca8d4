#!/usr/bin/env bash
# What training steps and decoding cost at the paper's sizes, on an idle machine. In the repository's top folder:
#   diminishing_attention/experiments/speed/run.sh
set -euo pipefail
python -m diminishing_attention.experiments.benchmark --repeats 9 --csv diminishing_attention/experiments/speed/benchmark.csv
