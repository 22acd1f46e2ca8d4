#!/usr/bin/env bash
# DialogSum by SAMSum's summariser (Table 3). After samsum/run.sh, in the top folder:
#   head_masking/experiments/dialogsum/run.sh DIALOGSUM ENCODER SAMSUM     DIALOGSUM: a folder with 300 and 200 dialogues as JSON lines
set -euo pipefail
E="$2" OUT=head_masking/experiments/dialogsum R=runs/hm-samsum
run() { python -m "head_masking.$1" "${@:2}"; }
# Outputs without masks, with the oracle's and with each tagger's, and the words that the taggers select; V: data, decoding
systems() {  # DIR MODEL HEADS TAGGER ...
  local out=$1 model=$2 name; name=$(basename "$2")
  run predict "$model" "${V[@]}" --out "$out/$name.jsonl"
  run predict "$model" "${V[@]}" --oracle --heads "$3" --out "$out/$name+oracle.jsonl"
  for tagger in "${@:4}"; do
    run predict "$model" "${V[@]}" --tagger "$tagger" --heads "$3" --out "$out/$name+$(basename "$tagger").jsonl"
    run predict "$tagger" "${V[@]}" --out "$out/$(basename "$tagger").jsonl"
  done
}
run experiments.samsum.data $R "$3" "$1"
W=(--preset pretrained --data $R/dialogues --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --patience 3
  --encoder "$E" --steps 150 --save-every 30 --resume)
run train --out $R/minilm-dialogues "${W[@]}" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16
run train --out $R/frozen-dialogues "${W[@]}" --learning-rate 5e-4
V=(--data $R/dialogues --no-repeat-ngram-size 3)
run experiments.sweep $R/summarizer --tagger $R/minilm-dialogues "${V[@]}" --select --group 1 --documents 60 --out $R/heads-dialogues
systems $R/dialogsum $R/summarizer "$(cat $R/heads-dialogues/summarizer.heads)" $R/minilm-dialogues $R/frozen-dialogues $R/minilm
run experiments.seeds $OUT/table_3.csv $R/dialogsum/*.jsonl
