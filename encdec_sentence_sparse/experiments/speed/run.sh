#!/usr/bin/env bash
# Speed at BART's sizes, random weights (Tables 1 and 4). Hours on a machine that does nothing else.
# In the repository's top folder: encdec_sentence_sparse/experiments/speed/run.sh
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/speed
bench() { python -m encdec_sentence_sparse.experiments.benchmark "$@" --overwrite; }
bench --models base --lengths 800 --tokens 67 --r 5 10 --repeats 5 --csv $OUT/benchmark_800.csv   # CNN/DailyMail in Table 4
bench --models base --lengths 4000 --tokens 365 --r 10 30 --repeats 3 --csv $OUT/benchmark_4000.csv  # arXiv in Table 4
python -m encdec_sentence_sparse.experiments.cost --csv $OUT/growth.csv --overwrite
