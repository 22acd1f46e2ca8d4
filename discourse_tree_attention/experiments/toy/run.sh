#!/usr/bin/env bash
# Toy stories whose text does not say what matters, but whose trees do. In the repository's top folder, without arguments.
# 10 CPU seconds a run. Figures 4 and 5 are of tests/storm.dis.
source discourse_tree_attention/experiments/table.sh
OUT=$DTA/experiments/toy
DATA=toy:signal=0,count=600
for s in 0 1 2; do for a in $SYSTEMS $CONTROLS; do
  train runs/toy/$a-seed$s $a --data $DATA --steps 300 --warmup 100 --seed $s
  rows runs/toy/$a-seed$s $a $DATA
done; done
baselines runs/toy/none-seed0 $DATA
python -m shared.score runs/toy/*.jsonl --csv $OUT/toy_edu.csv --overwrite --minus none d_tree-shuffled previous
DATA=toy:signal=0,count=1000
for n in 20 100 1000; do for k in 0 1 2 3 4; do for a in none dot c_tree_nuclearity d_tree; do     # Section 5.2
  train runs/low-toy/$a-n$n-seed$k $a --data $DATA --steps 300 --warmup 100 --examples $n --seed $k
  rows runs/low-toy/$a-n$n-seed$k $a-n$n $DATA
done; done; done
python -m shared.score runs/low-toy/*.jsonl --csv $OUT/low_resource_toy.csv --overwrite --minus none-n20 none-n100 none-n1000
python -m $DTA.experiments.figures runs/figures $OUT/low_resource_toy.csv
cp runs/figures/{figure_4,figure_5,low_resource_toy}.png $OUT
