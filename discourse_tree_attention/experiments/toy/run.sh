#!/usr/bin/env bash
# Toy stories whose text does not say what matters, but whose trees do. In the repository's top folder, without arguments.
# 10 CPU seconds a run. Figures 4 and 5 are of tests/storm.dis.
set -euo pipefail
DTA=discourse_tree_attention OUT=discourse_tree_attention/experiments/toy
for s in 0 1 2; do
  T=(python -m $DTA.train --data toy:signal=0,count=600 --steps 300 --warmup 100 --resume --seed $s)
  "${T[@]}" --attention dot --heads 8 --out runs/toy/dot-8-heads-seed$s
  for a in dot dense learned_random fixed_random none d_tree c_tree c_tree_nuclearity previous; do
    "${T[@]}" --attention $a --out runs/toy/$a-seed$s
  done
  for a in d_tree c_tree_nuclearity; do "${T[@]}" --attention $a --shuffle-trees True --out runs/toy/$a-shuffled-seed$s; done
done
python -m $DTA.evaluate runs/toy/* --csv $OUT/toy_edu.csv --overwrite --minus none d_tree-shuffled previous
for n in 20 100 1000; do for k in 0 1 2 3 4; do for a in none dot c_tree_nuclearity d_tree; do     # Section 5.2
  python -m $DTA.train --data toy:signal=0,count=1000 --steps 300 --warmup 100 --examples $n --examples-seed $k --seed $k \
    --attention $a --out runs/low-toy/$a-n$n-draw$k --resume
done; done; done
python -m $DTA.evaluate runs/low-toy/* --csv $OUT/low_resource_toy.csv --overwrite --minus none-n20 none-n100 none-n1000
python -m $DTA.experiments.figures runs/figures $OUT/low_resource_toy.csv
cp runs/figures/{figure_4,figure_5,low_resource_toy}.png $OUT
