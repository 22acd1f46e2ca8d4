#!/usr/bin/env bash
# News, the paper's kind of text: BBC's articles, 226 words, and extracts of three of their sentences, 63 words.
# In the repository's top folder, two hours on one core; a stopped script goes on where it was:
#   diminishing_attention/experiments/bbc/run.sh BBC SAMSUM
# BBC: as head_masking/experiments/bbc/run.sh says. SAMSUM: as samsum/run.sh says; its dialogues, joined by threes, help the
# baseline to learn to copy.
# The CSV is of commit 55308d3 or before it; the commands now draw batches in another order.
set -euo pipefail
BBC="$1" SAMSUM="$2" OUT=diminishing_attention/experiments/bbc R=runs/bbc-pg
run() { python -m "diminishing_attention.$1" "${@:2}"; }
mkdir -p $R/both $R/test
python -m head_masking.experiments.data bbc "$BBC" $R/news train validation
head -n 13931 "$SAMSUM/train.jsonl" | run experiments.samsum.join | cat - $R/news/train.jsonl > $R/both/train.jsonl
cp $R/news/validation.jsonl $R/both
for s in ${SEEDS:-0 1 2}; do   # three baselines; each side goes on from each
  run train --out $R/pg-$s --seed $s --data $R/both --vocabulary 8000 --hidden 128 --max-source 400 --max-target 120 --steps 1000 \
    --save-every 100 --resume
  C=(--init $R/pg-$s --data $R/news --steps 150 --save-every 75 --learning-rate 0.0005 --seed $s --resume)
  run train --out $R/more-$s "${C[@]}"   # the control: trained equally long without a mechanism
  run train --out $R/dim-$s "${C[@]}" --diminishing dim
  run train --out $R/cov-$s "${C[@]}" --coverage True
  run train --out $R/dydim-$s "${C[@]}" --diminishing dydim
done
# The held-out test set; nothing was chosen. It was opened for the first baseline, and again for the two others.
python -m head_masking.experiments.data bbc "$BBC" $R/held-out test
for s in ${SEEDS:-0 1 2}; do
  for r in {more,dim,cov,dydim}-$s; do
    run predict $R/$r --data $R/held-out --max-length 120 --out $R/test/$r.jsonl --overwrite
  done
done
run experiments.baselines --data $R/held-out --out $R/test --overwrite
python -m shared.score $R/test/*.jsonl --minus more cov --csv $OUT/test.csv --overwrite
