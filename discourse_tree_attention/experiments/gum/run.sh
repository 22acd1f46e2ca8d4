#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum
table $OUT gum_edu "0 1 2" --data "$GUM"
SYSTEMS="none dot d_tree c_tree c_tree_nuclearity previous"
table $OUT gum_sentence "0 1 2" --data "$GUM" --level sentence
table $OUT gum_edu_balanced "0" --data "$GUM" --balanced True
table $OUT gum_sentence_balanced "0" --data "$GUM" --level sentence --balanced True
python -m $DTA.experiments.salience --data "$GUM" --folds 5 --csv $OUT/tree_edu.csv
python -m $DTA.experiments.salience --data "$GUM" --folds 5 --level sentence --csv $OUT/tree_sentence.csv
python -m $DTA.experiments.probe runs/gum_edu --csv $OUT/probe.csv          # what the inputs hold
for n in 20 60 123; do                                                      # Section 5.2: draw k is tested on fold k
  for k in 0 1 2 3 4; do for a in none dot c_tree_nuclearity d_tree; do
    python -m $DTA.train "${E[@]}" --data "$GUM" --examples $n --examples-seed $k --seed $k --fold $k --attention $a \
      --out runs/low-gum/$a-n$n-draw$k
  done; done
  python -m $DTA.evaluate runs/low-gum/{none,dot,c_tree_nuclearity,d_tree}-n$n-* --csv $OUT/low_resource_gum_$n.csv
done
python -m $DTA.evaluate runs/low-gum/{none,dot,c_tree_nuclearity,d_tree}-* --csv $OUT/low_resource_gum.csv
python -m $DTA.experiments.figures $OUT/low_resource_gum.csv --out runs/figures && cp runs/figures/low_resource_gum.png $OUT
