#!/usr/bin/env bash
# Speed at BART's sizes, random weights, an idle machine, hours (Table 1, Appendix B, Section 4.1). pip install ctranslate2
# In the repository's top folder: encdec_sentence_sparse/experiments/speed/run.sh
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/speed
bench() { python -m encdec_sentence_sparse.experiments.benchmark "$@"; }
bench --models base --lengths 800 --beams 4 --r 10 --precision float32 packed bf16 --csv $OUT/benchmark_800.csv
bench --models base --lengths 4000 --beams 4 --r 10 --precision float32 packed --csv $OUT/benchmark_4000.csv
bench --models large --lengths 4000 --beams 4 --r 10 --csv $OUT/benchmark_large.csv
bench --models base --lengths 800 4000 --beams 4 --r 10 --precision int8 --csv $OUT/benchmark_int8.csv
bench --models base --lengths 800 --beams 1 4 --sources 1 4 --r 10 --sides generate approx CTranslate2 --csv $OUT/benchmark_batch.csv
bench --models base --lengths 4000 --beams 4 --r 10 --tokens 24 96 192 --sides approx --csv $OUT/benchmark_tokens.csv
bench --models base --lengths 1600 2400 --beams 4 --r 10 --sides approx mean_key --csv $OUT/benchmark_lengths.csv
bench --table-1 --appendix-b --models base --repeats 6 --csv $OUT/growth.csv
python -m encdec_sentence_sparse.experiments.memory   # prints the line of memory.txt; 4 GB more than the model
