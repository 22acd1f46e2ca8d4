#!/usr/bin/env bash
# SciTLDR with predicted trees: Tables 2 and 3 at both sizes, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/scitldr/run.sh SCITLDR      the folder SciTLDR-Data/SciTLDR-A of allenai/scitldr
# Parsing: 2.4 CPU seconds an abstract (the parser as experiments/parse.py says), 130 minutes. A run: 10 to 20 seconds.
source discourse_tree_attention/experiments/table.sh
SCITLDR=$1 OUT=$DTA/experiments/scitldr
mkdir -p data/scitldr
python -m $DTA.experiments.parse "$SCITLDR/train.jsonl" --out data/scitldr/train || true    # names the 3 that it loses
python -m $DTA.experiments.parse "$SCITLDR/dev.jsonl" --out data/scitldr/validation
grep -v -E 'H1xTup4KPr|HygfXWqTpm|HkMwHsCctm' "$SCITLDR/train.jsonl" > data/scitldr/train.jsonl
cp "$SCITLDR/dev.jsonl" data/scitldr/validation.jsonl
python -m $DTA.experiments.parse "$SCITLDR/test.jsonl" --out data/scitldr/test || true      # names the 2 that it loses
grep -v -E 'BJzbG20cFQ|rke4HiAcY7' "$SCITLDR/test.jsonl" > data/scitldr/test.jsonl
D=(--steps 200 --batch-size 32 --save-every 40)
python -m $DTA.experiments.tables statistics data/scitldr
table $OUT scitldr_edu "0 1 2" data/scitldr "${D[@]}" --units-taken 4
table $OUT scitldr_sentence "0 1 2" data/scitldr "${D[@]}" --level sentence --units-taken 1
table $OUT scitldr_edu_balanced "0 1 2" data/scitldr "${D[@]}" --units-taken 4 --balanced True
table $OUT scitldr_sentence_balanced "0 1 2" data/scitldr "${D[@]}" --level sentence --units-taken 1 --balanced True
# The held-out test set, which chose nothing: train, validation and test as published.
FOLDS=none table $OUT scitldr_edu_test "0 1 2" data/scitldr "${D[@]}" --units-taken 4
FOLDS=none table $OUT scitldr_sentence_test "0 1 2" data/scitldr "${D[@]}" --level sentence --units-taken 1
# Sentences without trees, as published: a rate for one head, one for none, by validation ROUGE-2; then 10 seeds of each.
S=data/scitldr_sentences
mkdir -p $S
cp "$SCITLDR"/{train,test}.jsonl $S && cp "$SCITLDR/dev.jsonl" $S/validation.jsonl
W=("${D[@]}" --data $S --level sentence --units-taken 1)
encoder $S --level sentence
for s in 0 1; do for rate in 0.0005 0.001 0.002 0.004 0.008 0.016; do for a in dot none; do
  train runs/rate/$a-rate$rate-seed$s $a "${ENCODER[@]}" "${W[@]}" --learning-rate $rate --seed $s
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
  train runs/own/$a-seed$s $a "${ENCODER[@]}" "${W[@]}" --learning-rate $rate --seed $s
  rows runs/own/$a-seed$s $a $S
done; done
python -m shared.score runs/own/*.jsonl --csv $OUT/own_rate_test.csv --overwrite --minus none previous
# EDUs: the head's rate in the same way; then the seeds of each system on the published parts, the head with its own rate.
W=("${D[@]}" --data data/scitldr --units-taken 4)
encoder data/scitldr
for s in 0 1; do for rate in 0.0005 0.001 0.002 0.004 0.008 0.016; do
  train runs/rate_edu/dot-rate$rate-seed$s dot "${ENCODER[@]}" "${W[@]}" --learning-rate $rate --seed $s
done; done
best runs/rate_edu $OUT/rate_edu.csv step rouge2 validation_loss
for s in {0..19}; do for a in none d_tree c_tree_nuclearity $CONTROLS dot; do
  rate=0.002 && [ $a = dot ] && rate=0.001
  train runs/seeds/$a-seed$s $a "${ENCODER[@]}" "${W[@]}" --learning-rate $rate --seed $s
  rows runs/seeds/$a-seed$s $a data/scitldr
done; done
for s in {0..4}; do for a in none dot; do                       # twice the updates
  rate=0.002 && [ $a = dot ] && rate=0.001
  train runs/seeds/$a-longer-seed$s $a "${ENCODER[@]}" "${W[@]}" --steps 400 --learning-rate $rate --seed $s
  rows runs/seeds/$a-longer-seed$s $a-longer data/scitldr
done; done
python -m shared.score runs/seeds/*.jsonl --csv $OUT/scitldr_edu_seeds_test.csv --overwrite \
  --minus none dot previous d_tree-shuffled c_tree_nuclearity-shuffled none-longer
python -m $DTA.experiments.salience --data data/scitldr --folds 5 --units-taken 4 --csv $OUT/tree_edu.csv --overwrite
python -m $DTA.experiments.salience --data data/scitldr --folds 5 --level sentence --units-taken 1 --csv $OUT/tree_sentence.csv --overwrite
for k in 0 1 2 3 4; do                                          # Section 5.2: 123 abstracts, draw k on fold k
  encoder data/scitldr-folds/$k
  for a in none dot d_tree; do
    train runs/low/$a-n123-draw$k $a "${ENCODER[@]}" "${D[@]}" --data data/scitldr-folds/$k --units-taken 4 --examples 123 --seed $k
    rows runs/low/$a-n123-draw$k $a-n123 data/scitldr-folds/$k
  done
done
sed -i 's/"seed": [0-9]*/"seed": 0/' runs/low/*.jsonl             # the draws share the documents out: one seed
python -m shared.score runs/low/*.jsonl --csv $OUT/low_resource_scitldr.csv --overwrite --minus none-n123
python -m $DTA.experiments.figures runs/figures $OUT/scitldr_*.csv && cp runs/figures/claims.png $OUT
