#!/usr/bin/env bash
# Multi30k, En-De (Table 1, Table 2, Figures 1, 2, 4 to 8). In the repository's top folder:
#   l0drop/experiments/multi30k/run.sh DATA STANZA       DATA holds train.en.gz, train.de.gz, val..., test_2016_flickr...
# About 6 CPU hours a seed on one core; a stopped script goes on where it was. The test split is given as SPLIT=test_2017_flickr.
set -euo pipefail
DATA="$1:en-de" STANZA="$2" OUT=l0drop/experiments/multi30k R=runs/m30k SPLIT="${SPLIT:-test_2016_flickr}"
run() { python -m "l0drop.$1" "${@:2}"; }
D=(--preset multi30k --data "$DATA" --mixed-precision bf16 --resume)
for s in 1 2 3; do
  run train --out $R/base-$s "${D[@]}" --l0drop none --seed $s
  F=(--init $R/base-$s --steps 500 --average-last 1 --seed $s --resume)   # a fine-tuning averages nothing, nor its control
  run train --out $R/longer-$s "${F[@]}"
  for l in 0.3 0.6 0.8 1.0 1.5; do run train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
  for p in pos freq group inv_freq; do run train --out $R/$p-$s "${F[@]}" --pattern $p --stanza "$STANZA"; done
  run train --out $R/every-$s "${F[@]}" --l0drop every --l0-weight 0.3
  # From scratch, and its control that trains as long and averages as many.
  run train --out $R/scratch-$s "${D[@]}" --l0drop output --l0-weight 0.6 --l0-start 3000 --steps 4500 --seed $s
  run train --out $R/base-4500-$s "${D[@]}" --l0drop none --steps 4500 --seed $s
  E=(--split $SPLIT --stanza "$STANZA")
  run evaluate $R/longer-$s $R/l0-0.3-$s $R/l0-0.6-$s $R/l0-0.8-$s $R/l0-1.0-$s $R/l0-1.5-$s "${E[@]}" \
    --json $R/seed$s.json --csv $OUT/multi30k_seed$s.csv
  run evaluate $R/longer-$s $R/every-$s "${E[@]}" --csv $OUT/every_seed$s.csv
  # The first table: the lambda that was chosen, on the split of the choice and on one that no choice has seen.
  for y in 2016 2017; do
    run evaluate $R/longer-$s $R/l0-0.8-$s --split test_${y}_flickr --csv $OUT/finetuned_${y}_seed$s.csv
    run evaluate $R/base-4500-$s $R/scratch-$s --split test_${y}_flickr --stanza "$STANZA" --csv $OUT/scratch_${y}_seed$s.csv
    run evaluate $R/l0-0.8-$s $R/longer-$s $R/pos-$s --split test_${y}_flickr --stanza "$STANZA" --csv $OUT/pos_${y}_seed$s.csv
  done
  run evaluate $R/l0-0.8-$s $R/longer-$s $R/pos-$s $R/freq-$s $R/group-$s $R/inv_freq-$s "${E[@]}" --csv $OUT/rules_seed$s.csv
  run evaluate $R/longer-$s $R/l0-0.8-$s --split $SPLIT --repeats 7 --csv $OUT/speed_seed$s.csv
  run experiments.precision $R/longer-$s $R/l0-0.6-$s --split $SPLIT --csv $OUT/precision_seed$s.csv
done
run experiments.entmax $R/base-2 --out $R/entmax-2
run experiments.figures $R/seed2.json $R/seed3.json --out $OUT --baseline $R/base-2 --sparse $R/entmax-2 \
  --run $R/l0-0.6-2 $R/l0-0.3-2 $R/l0-0.8-2 $R/l0-1.0-2 $R/l0-1.5-2 --split $SPLIT
# Characters: Figure 6.
C=(--preset multi30k --data "$DATA" --mixed-precision bf16 --units char --encoder-layers 2 --decoder-layers 2
  --batch-tokens 3000 --steps 5000 --length-penalty 1.0 --l0drop none --resume)
run train --out $R/char-base "${C[@]}"
F=(--init $R/char-base --steps 500 --average-last 1 --seed 1 --resume)
run train --out $R/char-longer "${F[@]}"
for l in 0.1 0.3; do run train --out $R/char-$l "${F[@]}" --l0drop output --l0-weight $l; done
run evaluate $R/char-longer $R/char-base $R/char-0.3 $R/char-0.1 --split $SPLIT --json $R/char.json --csv $OUT/characters.csv
run experiments.figures $R/char.json --run $R/char-0.1 --baseline $R/char-longer --out $OUT/characters --split $SPLIT
