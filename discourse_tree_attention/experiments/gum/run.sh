#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum
table $OUT gum_edu "0 1 2" --data "$GUM"
SYSTEMS="none dot d_tree c_tree c_tree_nuclearity previous"
table $OUT gum_sentence "0 1 2" --data "$GUM" --level sentence
python -m $DTA.experiments.salience "$GUM" --folds 5 --csv $OUT/tree_edu.csv --overwrite
python -m $DTA.experiments.salience "$GUM" --folds 5 --level sentence --csv $OUT/tree_sentence.csv --overwrite
for n in 20 60 123; do                                                      # Section 5.2: draw k is tested on fold k
  for k in 0 1 2 3 4; do for a in none dot c_tree_nuclearity d_tree; do
    python -m $DTA.train "${E[@]}" --data "$GUM" --examples $n --examples-seed $k --seed $k --fold $k --attention $a \
      --out runs/low-gum/$a-n$n-draw$k
  done; done
done
python -m $DTA.evaluate runs/low-gum/* --csv $OUT/low_resource_gum.csv --overwrite --minus none-n20 none-n60 none-n123
python -m $DTA.experiments.figures runs/figures $OUT/low_resource_gum.csv && cp runs/figures/low_resource_gum.png $OUT
