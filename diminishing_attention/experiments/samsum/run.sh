#!/usr/bin/env bash
# SAMSum, dialogues: Tables 1, 3 and 4 and Figures 2 and 3, in small. In the repository's top folder:
#   diminishing_attention/experiments/samsum/run.sh DATA
# The CSVs are of commits up to a789285, samsum_joined_searches*.csv of 55308d3; the commands now draw batches in another order.
# DATA holds the published train.jsonl, validation.jsonl and test.jsonl (https://arxiv.org/abs/1911.12237; fields id, document,
# summary, a turn per sentence). About two hours on one core; a stopped script goes on where it was.
set -euo pipefail
SAMSUM="$1" SEEDS="${SEEDS:-0 1 2}" OUT=diminishing_attention/experiments/samsum R=runs/samsum
run() { python -m "diminishing_attention.$1" "${@:2}"; }
# Outputs of RUNS under one setting, a file a run: decode FOLDER DATA FLAGS
decode() {
  for r in "${RUNS[@]}"; do
    local command=(predict) file="$1/${r##*/}.jsonl"
    [[ $r == *dim-plain* ]] && command=(experiments.controls plain_copy predict)
    [ -e "$file" ] || run "${command[@]}" "$r" --data "$2" --out "$file" --overwrite "${@:3}"
  done
}
baselines() { [ -e "$1/reference.jsonl" ] || run experiments.baselines --data "$2" --out "$1" --overwrite; }
# The last 800 dialogues of the training set decide when to stop; the published validation split (818) is for choices, the
# published test split (819) is held out.
mkdir -p $R/data $R/held-out
head -n 13931 "$SAMSUM/train.jsonl" > $R/data/train.jsonl
tail -n 800 "$SAMSUM/train.jsonl" > $R/data/validation.jsonl
cp "$SAMSUM/validation.jsonl" $R/data/test.jsonl
cp "$SAMSUM/test.jsonl" $R/held-out

# Three baselines of a small model; from each the control, trained equally long without a mechanism, and three mechanisms.
for s in $SEEDS; do
  run train --out $R/pg-$s --data $R/data --vocabulary 5000 --hidden 128 --max-target 60 --seed $s --steps 1800 --resume
  C=(--init $R/pg-$s --steps 150 --learning-rate 0.0005 --resume)
  run train --out $R/more-$s "${C[@]}"
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
done
SECTION_4_2=(--beam 6 --length-penalty 1.5 --trigram-blocking)
RUNS=()
for s in $SEEDS; do RUNS+=($R/{more,cov,dim,dydim}-$s); done
table() { # FOLDER DATA NAME FLAGS
  decode $R/$1 $2 --max-length 60 "${@:4}"; baselines $R/$1 $2
  python -m shared.score $R/$1/*.jsonl --minus more cov --csv $OUT/$3.csv --overwrite
}
table plain_test $R/held-out samsum_medium_test
table section_4_2_test $R/held-out samsum_medium_section_4_2_test "${SECTION_4_2[@]}"

# Three dialogues joined to one, nearer to the paper's lengths: 291 words and summaries of 63. One seed.
J=runs/samsum-joined
mkdir -p $J/data $J/held-out
for split in data/train data/validation data/test held-out/test; do
  run experiments.samsum.join < $R/$split.jsonl > $J/$split.jsonl
done
run train --out $J/pg-0 --data $J/data --vocabulary 5000 --hidden 128 --max-source 500 --max-target 110 \
  --steps 1500 --save-every 300 --resume
C=(--init $J/pg-0 --steps 150 --learning-rate 0.0005 --resume)
for s in 0 1 2; do   # seeds of the order of the data
  run train --out $J/more-$s "${C[@]}" --seed $s
  run train --out $J/dim-$s "${C[@]}" --seed $s --diminishing dim
done
run train --out $J/cov-0 "${C[@]}" --coverage True
run experiments.controls plain_copy train --out $J/dim-plain-0 "${C[@]}" --diminishing dim
RUNS=($J/{more,cov,dim,dim-plain}-0)
joined() { # FOLDER DATA NAME FLAGS
  decode $J/$1 $2 --max-length 110 "${@:4}"; baselines $J/$1 $2
  python -m shared.score $J/$1/reference.jsonl $J/$1/*-0.jsonl --minus more cov dim --csv $OUT/$3.csv --overwrite
}
joined test $J/held-out samsum_joined_test   # once
RUNS=($J/{more,dim}-{1,2})
decode $J/test_seeds $J/held-out --max-length 110
python -m shared.score $J/test/{more,dim}-0.jsonl $J/test_seeds/*.jsonl --minus more --csv $OUT/samsum_joined_seeds_test.csv --overwrite
# A second baseline, with DyDimAttn; plain beam search.
run train --out $J/pg-1 --data $J/data --vocabulary 5000 --hidden 128 --max-source 500 --max-target 110 \
  --steps 1500 --save-every 300 --seed 1 --resume
C=(--init $J/pg-1 --steps 150 --learning-rate 0.0005 --resume)
for s in 0 1 2; do
  run train --out $J/second/more-$s "${C[@]}" --seed $s
  run train --out $J/second/dim-$s "${C[@]}" --seed $s --diminishing dim
  run train --out $J/second/dydim-$s "${C[@]}" --seed $s --diminishing dydim
done
run train --out $J/second/cov-0 "${C[@]}" --seed 0 --coverage True
second() { # NAME FLAGS; once each
  decode $J/second_$1 $J/held-out --max-length 110 "${@:2}"
  python -m shared.score $J/second_$1/*.jsonl --minus more cov --csv $OUT/samsum_joined_second_$1.csv --overwrite
}
RUNS=($J/second/{more,dim,dydim}-{0,1,2} $J/second/cov-0)
second test
RUNS=($J/second/{more,dim,dydim,cov}-0)
second blocking_test --trigram-blocking
# Table 1's own comparison: each system by either search, and DimAttn in decoding alone, which is one update at rate 0 from the
# control. As run: commit 55308d3, all trained anew; its batches come in another order, so its pg-0 and pg-1 are a third and a
# fourth baseline.
B=$J/both
C=(--init $J/pg-0 --steps 150 --learning-rate 0.0005 --resume)
either() { # SYSTEM ORDER
  run predict $B/$1-$2 --data $J/held-out --max-length 110 --system $1.plain --out $B/plain/$1-$2.jsonl --overwrite
  run predict $B/$1-$2 --data $J/held-out --max-length 110 "${SECTION_4_2[@]}" --system $1.search --out $B/search/$1-$2.jsonl --overwrite
}
for s in 0 1 2; do   # orders of the last updates
  run train --out $B/more-$s "${C[@]}" --seed $s
  run train --out $B/cov-$s "${C[@]}" --seed $s --coverage True
  run train --out $B/dim-$s "${C[@]}" --seed $s --diminishing dim
  for a in more cov dim; do either $a $s; done
done
run train --out $B/dydim-0 "${C[@]}" --seed 0 --diminishing dydim
run train --out $B/on-0 --init $B/more-0 --steps 1 --learning-rate 0 --seed 0 --diminishing dim --resume
for a in dydim on; do either $a 0; done
MINUS=(--minus more.plain cov.plain more.search)
python -m shared.score $B/{plain,search}/{more,cov,dim,dydim,on}-0.jsonl "${MINUS[@]}" --csv $OUT/samsum_joined_searches_test.csv --overwrite
python -m shared.score $B/{plain,search}/{more,cov,dim}-?.jsonl "${MINUS[@]}" --csv $OUT/samsum_joined_searches_orders_test.csv --overwrite
B=$J/both_fourth   # one order
C=(--init $J/pg-1 --steps 150 --learning-rate 0.0005 --seed 0 --resume)
run train --out $B/more-0 "${C[@]}"
run train --out $B/cov-0 "${C[@]}" --coverage True
run train --out $B/dim-0 "${C[@]}" --diminishing dim
run train --out $B/dydim-0 "${C[@]}" --diminishing dydim
for a in more cov dim dydim; do either $a 0; done
python -m shared.score $B/{plain,search}/*.jsonl "${MINUS[@]}" --csv $OUT/samsum_joined_searches_fourth_test.csv --overwrite
run experiments.figures $OUT/samsum_joined_test.csv --out $OUT --title "Three dialogues joined to one, held-out test set"
run experiments.searches --csv diminishing_attention/experiments/searches.csv --overwrite   # of the tables, titles' too
run experiments.figures --out diminishing_attention/experiments   # figure_1.png, searches.png, speed.png
