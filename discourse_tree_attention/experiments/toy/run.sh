#!/usr/bin/env bash
# Toy stories whose text does not say what matters, but whose trees do. In the repository's top folder, without arguments.
# 10 CPU seconds a run.
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/toy U=(--steps ${STEPS:-300} --warmup 100)
DATA=toy:signal=0,count=600
for s in ${SEEDS:-0 1 2}; do for a in $SYSTEMS $CONTROLS; do
  train runs/toy/$a-seed$s $a --data $DATA "${U[@]}" --seed $s
  rows runs/toy/$a-seed$s $a $DATA
done; done
baselines runs/toy/${SYSTEMS%% *}-seed0 $DATA
MINUS="none d_tree-shuffled previous" compare $OUT/toy_edu.csv runs/toy/*.jsonl
DATA=toy:signal=0,count=1000
for n in ${SIZES:-20 100 1000}; do for k in ${SEEDS:-0 1 2 3 4}; do for a in ${ONLY:-none dot c_tree_nuclearity d_tree}; do     # Section 5.2
  train runs/low-toy/$a-n$n-seed$k $a --data $DATA "${U[@]}" --examples $n --seed $k
  rows runs/low-toy/$a-n$n-seed$k $a-n$n $DATA
done; done; done
MINUS="none-n20 none-n100 none-n1000" compare $OUT/low_resource_toy.csv runs/low-toy/*.jsonl
