#!/usr/bin/env bash
# Toy stories whose text does not say what matters, but whose trees do. In the repository's top folder, without arguments.
# 10 CPU seconds a run.
# The CSVs beside it are of commit c23835c. Each seed has its own random encoder.
SYSTEMS=${SYSTEMS-none dot d_tree c_tree c_tree_nuclearity} CONTROLS=${CONTROLS-previous d_tree-shuffled}
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/toy U=(--steps ${STEPS:-300} --warmup 100)
DATA=toy:signal=0,count=600
for s in ${SEEDS:-0 1 2}; do for a in $SYSTEMS $CONTROLS; do
  train runs/toy/$a-seed$s $a --data $DATA "${U[@]}" --seed $s
  rows runs/toy/$a-seed$s $a $DATA
done; done
baselines runs/toy/${SYSTEMS%% *}-seed0 $DATA
MINUS="none d_tree-shuffled previous" compare $OUT/toy_edu.csv runs/toy/*.jsonl
for s in ${SEEDS:-0 1 2 3 4}; do for a in ${ONLY:-none d_tree c_tree_nuclearity}; do
  train runs/toy-five/$a-seed$s $a --data $DATA "${U[@]}" --seed $s
  rows runs/toy-five/$a-seed$s $a $DATA
done; done
MINUS="none c_tree_nuclearity" compare $OUT/toy_edu_five.csv runs/toy-five/*.jsonl
