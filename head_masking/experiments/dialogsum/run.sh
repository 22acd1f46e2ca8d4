#!/usr/bin/env bash
# DialogSum by SAMSum's summariser (Table 3). After samsum/run.sh, in the top folder:
#   head_masking/experiments/dialogsum/run.sh DIALOGSUM ENCODER SAMSUM     DIALOGSUM: a folder with 300 and 200 dialogues as JSON lines
set -euo pipefail
E="$2" OUT=head_masking/experiments/dialogsum R=runs/hm-samsum
. head_masking/experiments/systems.sh
run experiments.data samsum $R "$3" --dialogsum "$1"
W=(--preset pretrained --data $R/dialogues --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --patience 3
  --encoder "$E" --steps 150 --save-every 30 --resume)
run train --out $R/minilm-dialogues "${W[@]}" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16
run train --out $R/frozen-dialogues "${W[@]}" --learning-rate 5e-4
V=(--data $R/dialogues --no-repeat-ngram-size 3)
run experiments.sweep $R/summarizer --tagger $R/minilm-dialogues "${V[@]}" --group 1 --documents 60 --out $R/heads-dialogues
systems $R/dialogsum $R/summarizer "$(cat $R/heads-dialogues/summarizer.heads)" $R/minilm-dialogues $R/frozen-dialogues $R/minilm
table $OUT/table_3.csv $R/dialogsum/*.jsonl
