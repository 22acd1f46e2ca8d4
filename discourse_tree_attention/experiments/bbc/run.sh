#!/usr/bin/env bash
# BBC news, whose summaries are three sentences of the article, without a parser. In the repository's top folder:
#   discourse_tree_attention/experiments/bbc/run.sh DATA      15 CPU minutes by commit c23835c, in one process
# DATA: train.jsonl, validation.jsonl, test.jsonl, which head_masking's experiments.data bbc writes of BBC's articles.
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/bbc D=data/bbc
mkdir -p $D
cp "$1"/*.jsonl $D
U=(--steps ${STEPS:-200} --batch-size 32 --save-every 40 --level sentence --units-taken 3)
encoder $D "${U[@]}"
W=("${ENCODER[@]}" "${U[@]}" --data $D)
# Rates: of six from 0.0005 to 0.016 each system's best in validation ROUGE-2 over two seeds.
for s in ${SEEDS:-$(seq 0 19)}; do for a in ${ONLY:-none dot previous}; do
  rate=0.002 && [ $a = dot ] && rate=0.008
  [ $a = previous ] && rate=0.016
  train runs/bbc/$a-seed$s $a "${W[@]}" --learning-rate $rate --seed $s
  rows runs/bbc/$a-seed$s $a $D
done; done
baselines runs/bbc/$a-seed$s $D   # Lead and Oracle, by the numbers of any run
MINUS="none previous" compare $OUT/sentence_test.csv runs/bbc/*.jsonl   # the held-out test set, once
