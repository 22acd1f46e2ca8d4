#!/usr/bin/env bash
# Stories of four facts, whose truth is known: Tables 1 and 3, Figures 2 to 5 and 10, in small. In the repository's top
# folder: head_masking/experiments/toy/run.sh (an hour of one core a seed)
set -euo pipefail
OUT=head_masking/experiments/toy R=runs/hm-toy
run() { python -m "head_masking.$1" "${@:2}"; }
run experiments.facts $R/facts --signal 0 0.5 1
L=(--learning-rate 1e-3 --schedule inverse_sqrt --warmup 50 --steps 800 --save-every 50 --patience 99 --resume)
T=(--preset tagger --min-run 2 --train-encoder True "${L[@]}")
for s in 0 1 2; do
  # Table 3: a summariser that does not know what matters, taggers that learned it from n stories.
  run train --out $R/copies-$s --data $R/facts/0 --width 64 --feed-forward 256 --steps 1500 --seed $s --resume
  for n in 1000 100 300 4000; do
    run train --out $R/tagger-$n-$s --encoder $R/copies-$s --data $R/facts/1 --examples $n --seed $s "${T[@]}"
  done
  run train --out $R/frozen-1000-$s --encoder $R/copies-$s --data $R/facts/1 --examples 1000 --seed $s "${T[@]}" --train-encoder False
  TAGGERS=($R/tagger-1000-$s $R/tagger-{100,300,4000}-$s $R/frozen-1000-$s)
  run experiments.sweep $R/copies-$s --tagger "${TAGGERS[@]}" --data $R/facts/1 --select --group 1 --effects --focus \
    --documents 200 --json $R/sweep-$s.json
  run evaluate $R/copies-$s --tagger "${TAGGERS[@]}" --data $R/facts/1 --heads $R/sweep-$s.json --oracle --flip 0.1 0.2 0.3 0.5 \
    --json $R/toy-$s.json --csv $OUT/table_3_seed$s.csv
  # How labels are made.
  for k in "runs 1" "runs 2" "newsroom 1" "lcs 1"; do
    set -- $k
    run evaluate $R/copies-$s --data $R/facts/1 --heads top --oracle --method $1 --min-run $2 --csv $OUT/labels_$1_$2_seed$s.csv
  done
  # Figure 5: the control goes on with the same n stories, as long as the tagger.
  for n in 100 300 1000 4000; do
    run train --out $R/adapted-$n-$s --init $R/copies-$s --data $R/facts/1 --examples $n --seed $s "${L[@]}"
    run experiments.sweep $R/adapted-$n-$s --tagger $R/tagger-$n-$s --data $R/facts/1 --select --group 1 --documents 100 \
      --json $R/heads-$n-$s.json
    run evaluate $R/adapted-$n-$s --tagger $R/tagger-$n-$s --data $R/facts/1 --heads $R/heads-$n-$s.json --json $R/adapted-$n-$s.json
  done
  # Table 1: half of the verbs are at random; the summariser goes on for 300 updates, or for 800 as the tagger does.
  run train --out $R/half-$s --init $R/copies-$s --data $R/facts/0.5 --steps 300 --learning-rate 3e-4 --warmup 20 \
    --save-every 50 --patience 99 --seed $s --resume
  run train --out $R/half800-$s --init $R/copies-$s --data $R/facts/0.5 --seed $s "${L[@]}"
  run train --out $R/tagger-half-$s --encoder $R/half-$s --data $R/facts/0.5 --seed $s "${T[@]}"
  for m in half half800; do
    run experiments.sweep $R/$m-$s --tagger $R/tagger-half-$s --data $R/facts/0.5 --select --group 1 --documents 200 \
      --json $R/heads-$m-$s.json
    run evaluate $R/$m-$s --tagger $R/tagger-half-$s --data $R/facts/0.5 --heads $R/heads-$m-$s.json --oracle --csv $OUT/table_1_$m-$s.csv
  done
done
run experiments.figures $R/sweep-0.json --out $OUT            # Figures 2, 3, 4, 10
run experiments.figures $R/adapted-*.json --out $OUT          # Figure 5
run experiments.figures $R/toy-?.json --out $OUT              # flipped labels
# table_1.csv and table_3.csv hold the files table_1_*.csv and table_3_seed*.csv of the three seeds in one.
