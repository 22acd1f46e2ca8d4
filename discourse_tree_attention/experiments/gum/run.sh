#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
# gum_edu.csv and gum_sentence.csv are of commit 55308d3 or before it, with that commit's labels.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum U=(--steps ${STEPS:-240})
table $OUT gum_edu "$GUM" "${U[@]}"
SYSTEMS=${ONLY:-none dot d_tree c_tree c_tree_nuclearity} table $OUT gum_sentence "$GUM" "${U[@]}" --level sentence
# With today's oracle: commit c23835c, two seeds.
SEEDS=${SEEDS:-0 1} SYSTEMS=${ONLY:-none dot d_tree c_tree_nuclearity} CONTROLS="" MINUS="none c_tree_nuclearity dot" \
  table $OUT gum_edu_new_oracle "$GUM" "${U[@]}"
