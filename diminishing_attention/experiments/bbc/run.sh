#!/usr/bin/env bash
# News, the paper's kind of text: BBC's articles, 226 words, and extracts of three of their sentences, 63 words.
# In the repository's top folder, an hour and a half on one core; a stopped script goes on where it was:
#   diminishing_attention/experiments/bbc/run.sh BBC SAMSUM
# BBC: as head_masking/experiments/bbc/run.sh says. SAMSUM: as samsum/run.sh says; its dialogues, joined by threes, help the
# baseline to learn to copy.
set -euo pipefail
BBC="$1" SAMSUM="$2" OUT=diminishing_attention/experiments/bbc R=runs/bbc-pg
run() { python -m "diminishing_attention.$1" "${@:2}"; }
mkdir -p $R/both $R/test
python -m head_masking.experiments.data bbc "$BBC" $R/news train validation
head -n 13931 "$SAMSUM/train.jsonl" | run experiments.samsum.join | cat - $R/news/train.jsonl > $R/both/train.jsonl
cp $R/news/validation.jsonl $R/both
run train --out $R/pg-0 --data $R/both --vocabulary 8000 --hidden 128 --max-source 400 --max-target 120 --steps 1000 \
  --save-every 100 --resume
C=(--init $R/pg-0 --data $R/news --steps 150 --save-every 75 --learning-rate 0.0005 --resume)
for s in 0 1 2; do   # seeds of the order of the data; one baseline
  run train --out $R/more-$s "${C[@]}" --seed $s   # the control: trained equally long without a mechanism
  run train --out $R/dim-$s "${C[@]}" --seed $s --diminishing dim
done
run train --out $R/cov-0 "${C[@]}" --coverage True
run train --out $R/dydim-0 "${C[@]}" --diminishing dydim
# The held-out test set, once; nothing was chosen.
python -m head_masking.experiments.data bbc "$BBC" $R/held-out test
for r in {more,dim}-{0,1,2} cov-0 dydim-0; do
  run predict $R/$r --data $R/held-out --max-length 120 --out $R/test/$r.jsonl --overwrite
done
run experiments.baselines --data $R/held-out --out $R/test --overwrite
python -m shared.score $R/test/*.jsonl --minus more cov --csv $OUT/test.csv --overwrite
