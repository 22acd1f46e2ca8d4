#!/usr/bin/env bash
# Time and memory, one core, random weights; then an epoch of trained GUM runs. In the repository's top folder. 5 minutes.
set -euo pipefail
DTA=discourse_tree_attention OUT=discourse_tree_attention/experiments/speed
python -m $DTA.experiments.benchmark --documents 1 --repeats 25 --csv $OUT/benchmark.csv
python -m $DTA.experiments.epoch runs/gum_edu/{dot,c_tree,d_tree,none,dot-8-heads}-fold0-seed0 --csv $OUT/epoch.csv
