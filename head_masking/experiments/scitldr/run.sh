#!/usr/bin/env bash
# SciTLDR by a model that writes random sentences of abstracts (Table 3). In the top folder:
#   head_masking/experiments/scitldr/run.sh SCITLDR ENCODER      SCITLDR: a folder with train.jsonl and dev.jsonl
set -euo pipefail
E="$2" OUT=head_masking/experiments/scitldr R=runs/hm-scitldr
. head_masking/experiments/systems.sh
run experiments.scitldr.data "$1" $R
run experiments.summarizer --out $R/sentences --data $R/sentences-data --max-source 400 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 \
  --positions 400 --dropout 0.1 --batch-size 32 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --steps 2250 --resume
W=(--preset pretrained --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --patience 3 --encoder "$E" --resume)
M=(--save-every 100 --learning-rate 1e-4 --train-encoder True --mixed-precision bf16 --steps 300)
run train --out $R/minilm-marked "${W[@]}" --data $R/marked "${M[@]}"
run train --out $R/minilm-abstracts "${W[@]}" --data $R/abstracts "${M[@]}"
run train --out $R/frozen-abstracts "${W[@]}" --data $R/abstracts --save-every 0 --patience 2 --learning-rate 5e-4 --schedule constant --steps 1034
D=(--data $R/abstracts --no-repeat-ngram-size 3) V=(--data $R/abstracts --no-repeat-ngram-size 3 --limit 300)
run experiments.sweep $R/sentences --tagger $R/minilm-marked "${D[@]}" --select --group 1 --documents 150 --out $R/heads
systems $R/out/sentences $R/sentences "$(cat $R/heads/sentences.heads)" \
  $(for t in ${TAGGERS:-minilm-marked minilm-abstracts frozen-abstracts}; do echo $R/$t; done)
# The control: the model goes on with the same 1,500 abstracts and their summaries.
run experiments.summarizer --out $R/adapted-sentences --init $R/sentences --data $R/abstracts --steps 200 --learning-rate 3e-4 --warmup 50 --save-every 50 \
  --patience 3 --resume
systems $R/out/adapted $R/adapted-sentences 2:0,2 $R/minilm-abstracts
table $OUT/table_3.csv $R/out/sentences/*.jsonl
table $OUT/table_3_adapted.csv $R/out/adapted/*.jsonl
