#!/usr/bin/env bash
# Speed at the paper's sizes, random weights, hours on a machine that does nothing else. In the repository's top folder.
# The committed tables are of commit a789285, whose script had more sides and rank intervals.
# QUICK=--quick l0drop/experiments/speed/run.sh      seconds: does it run?
set -euo pipefail
python -m l0drop.experiments.benchmark --repeats 9 --overwrite ${QUICK:-} --csv ${QUICK:+runs/}l0drop/experiments/speed/benchmark.csv
