#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum U=(--steps ${STEPS:-240})
table $OUT gum_edu "$GUM" "${U[@]}"
SYSTEMS=${ONLY:-none dot d_tree c_tree c_tree_nuclearity} table $OUT gum_sentence "$GUM" "${U[@]}" --level sentence
for n in ${SIZES:-20 60 123}; do for k in ${SEEDS:-0 1 2 3 4}; do                     # Section 5.2: draw k is tested on fold k
  encoder "$GUM-folds/$k"
  for a in ${ONLY:-none dot c_tree_nuclearity d_tree}; do
    train runs/low-gum/$a-n$n-seed$k $a "${ENCODER[@]}" "${U[@]}" --data "$GUM-folds/$k" --examples $n --seed $k
    rows runs/low-gum/$a-n$n-seed$k $a-n$n "$GUM-folds/$k"
  done
done; done
MINUS="none-n20 none-n60 none-n123" draws runs/low-gum $OUT/low_resource_gum.csv
