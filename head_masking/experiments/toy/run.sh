#!/usr/bin/env bash
# Stories of four facts, whose truth is known: Table 3, Figures 2 to 5 and 10, in small. In the repository's top
# folder: head_masking/experiments/toy/run.sh (an hour of one core a seed)
set -euo pipefail
OUT=head_masking/experiments/toy R=runs/hm-toy
. head_masking/experiments/systems.sh
choose() { run experiments.sweep "$1" --tagger "$2" --data "$3" --group 1 --documents "$4" --out $R/heads "${@:5}"; }
run experiments.data toy $R/facts --signal 0 1
L=(--learning-rate 1e-3 --schedule inverse_sqrt --warmup 50 --steps 800 --save-every 50 --patience 99 --resume)
T=(--preset pretrained --min-run 2 --train-encoder True "${L[@]}")
for s in ${SEEDS:-0 1 2}; do
  # Table 3: a summariser that does not know what matters, taggers that learned it from n stories.
  run experiments.summarizer --out $R/copies-$s --data $R/facts/0 --vocabulary 1000 --dropout 0 --steps 1500 --batch-size 32 \
    --learning-rate 1e-3 --warmup 100 --save-every 100 --seed $s --resume
  for n in 1000 100 300 4000; do
    run train --out $R/tagger-$n-$s --encoder $R/copies-$s/model --data $R/facts/1 --examples $n --seed $s "${T[@]}"
  done
  run train --out $R/frozen-1000-$s --encoder $R/copies-$s/model --data $R/facts/1 --examples 1000 --seed $s "${T[@]}" --train-encoder False
  choose $R/copies-$s $R/tagger-1000-$s $R/facts/1 200
  V=(--data $R/facts/1 --min-run 2)
  systems $R/table_3/$s $R/copies-$s "$(heads copies-$s)" $R/tagger-{1000,100,300,4000}-$s $R/frozen-1000-$s
  # Figure 5: the control goes on with the same n stories, as long as the tagger.
  for n in ${SIZES:-100 300 1000 4000}; do
    run experiments.summarizer --out $R/adapted-$n-$s --model $R/copies-$s/model --data $R/facts/1 --examples $n --batch-size 32 \
      --seed $s "${L[@]}"
    choose $R/adapted-$n-$s $R/tagger-$n-$s $R/facts/1 100
    systems $R/sizes/$s/$n $R/adapted-$n-$s "$(heads adapted-$n-$s)" $R/tagger-$n-$s
  done
done
table $OUT/table_3.csv $R/table_3/*/*.jsonl
for n in ${SIZES:-100 300 1000 4000}; do table $R/sizes/$n.csv $R/sizes/*/$n/*.jsonl; done
head -qn 1 $R/sizes/*.csv | head -n 1 > $OUT/sizes.csv
tail -qn +2 $R/sizes/*.csv >> $OUT/sizes.csv                    # Figure 5
run experiments.sweep $R/copies-0 --tagger $R/tagger-1000-0 --data $R/facts/1 --effects --focus --documents 200 --out $R/analysis
cp $R/analysis/{effects,synergy,focus}.csv $OUT                # Figures 2, 3, 4, 10
run experiments.figures $OUT
