#!/usr/bin/env bash
# Speed at BART's sizes, random weights (Tables 1 and 4, Appendix B): hours of CPU. As run: AMD EPYC with AVX-512, one
# thread, a busy machine; the rows of 4,000 tokens and growth.csv are of commit 55308d3, with three and six rounds.
# In the repository's top folder: encdec_sentence_sparse/experiments/speed/run.sh
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/speed
python -m encdec_sentence_sparse.experiments.benchmark --csv $OUT/benchmark.csv --overwrite
python -m encdec_sentence_sparse.experiments.figures --out $OUT --speed $OUT/benchmark.csv
python -m encdec_sentence_sparse.experiments.cost --csv $OUT/growth.csv --overwrite
