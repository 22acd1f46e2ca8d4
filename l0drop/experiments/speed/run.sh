#!/usr/bin/env bash
# Speed at the paper's sizes, random weights, hours on a machine that does nothing else. In the repository's top folder.
# The committed tables are of commit a789285, whose script had more sides and rank intervals.
# QUICK=--quick l0drop/experiments/speed/run.sh      seconds: does it run?
set -euo pipefail
for S in 400 2048; do
  python -m l0drop.experiments.benchmark --shapes $S --repeats $((S == 400 ? 9 : 7)) --overwrite ${QUICK:-} \
    --csv l0drop/experiments/speed/benchmark_$S.csv
done
