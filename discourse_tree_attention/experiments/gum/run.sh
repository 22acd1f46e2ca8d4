#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum
python -m $DTA.experiments.tables statistics "$GUM"
table $OUT gum_edu "0 1 2" "$GUM"
SYSTEMS="none dot d_tree c_tree c_tree_nuclearity"
table $OUT gum_sentence "0 1 2" "$GUM" --level sentence
python -m $DTA.experiments.salience --data "$GUM" --folds 5 --csv $OUT/tree_edu.csv --overwrite
python -m $DTA.experiments.salience --data "$GUM" --folds 5 --level sentence --csv $OUT/tree_sentence.csv --overwrite
for n in 20 60 123; do for k in 0 1 2 3 4; do                               # Section 5.2: draw k is tested on fold k
  encoder "$GUM-folds/$k"
  for a in none dot c_tree_nuclearity d_tree; do
    train runs/low-gum/$a-n$n-draw$k $a "${ENCODER[@]}" --data "$GUM-folds/$k" --examples $n --seed $k
    rows runs/low-gum/$a-n$n-draw$k $a-n$n "$GUM-folds/$k"
  done
done; done
sed -i 's/"seed": [0-9]*/"seed": 0/' runs/low-gum/*.jsonl                   # the draws share the documents out: one seed
python -m shared.score runs/low-gum/*.jsonl --csv $OUT/low_resource_gum.csv --overwrite --minus none-n20 none-n60 none-n123
python -m $DTA.experiments.figures runs/figures $OUT/low_resource_gum.csv && cp runs/figures/low_resource_gum.png $OUT
