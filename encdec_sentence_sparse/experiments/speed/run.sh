#!/usr/bin/env bash
# Speed at BART's sizes, random weights (Tables 1 and 4, Appendix B). Hours on a machine that does nothing else.
# In the repository's top folder: encdec_sentence_sparse/experiments/speed/run.sh
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/speed
python -m encdec_sentence_sparse.experiments.benchmark --csv $OUT/benchmark.csv --overwrite
python -m encdec_sentence_sparse.experiments.cost --csv $OUT/growth.csv --overwrite
