#!/usr/bin/env bash
# SAMSum, summaries of dialogues (Table 1's CNN/Daily Mail in small). In the repository's top folder:
#   l0drop/experiments/samsum/run.sh DATA STANZA       DATA holds train.jsonl, validation.jsonl
set -euo pipefail
DATA="$1" STANZA="$2" OUT=l0drop/experiments/samsum R=runs/samsum SPLIT="${SPLIT:-validation}"
run() { python -m "l0drop.$1" "${@:2}"; }
for s in 1 2 3; do
  run train --out $R/base-$s --data "$DATA" --l0drop none --vocabulary 6000 --width 192 --feed-forward 768 \
    --residual-dropout 0.1 --attention-dropout 0.1 --max-source 300 --max-target 80 --learning-rate 0.277 --warmup 400 \
    --steps 2400 --mixed-precision bf16 --length-penalty 0.9 --seed $s --resume
  F=(--init $R/base-$s --steps 300 --seed $s --resume)
  run train --out $R/longer-$s "${F[@]}"
  for l in 0.3 0.6 1.0; do run train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
  run train --out $R/pos-$s "${F[@]}" --pattern pos --stanza "$STANZA"   # a rule of Section 7 beside it
  run evaluate $R/longer-$s $R/base-$s $R/l0-0.3-$s $R/l0-0.6-$s $R/l0-1.0-$s $R/pos-$s --split $SPLIT --stanza "$STANZA" \
    --csv $OUT/samsum_seed$s.csv
done
