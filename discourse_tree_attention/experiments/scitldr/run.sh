#!/usr/bin/env bash
# SciTLDR with predicted trees: Tables 2 and 3 at both sizes, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/scitldr/run.sh SCITLDR      the folder SciTLDR-Data/SciTLDR-A of allenai/scitldr
# Parsing: 2.4 CPU seconds an abstract on one machine, 6 on another (the parser as experiments/parse.py says): two to five
# hours. A run: 10 to 20 seconds.
# The CSVs beside it are of commit 55308d3 or before it, with that commit's labels, but for own_rate_test.csv.
source discourse_tree_attention/experiments/table.sh
SCITLDR=$1 OUT=$DTA/experiments/scitldr
D=data/scitldr S=data/scitldr_sentences    # with trees; sentences without trees, as published
mkdir -p $D $S
for part in train:train dev:validation test:test; do
  cp "$SCITLDR/${part%:*}.jsonl" $S/${part#*:}.jsonl
  cp $S/${part#*:}.jsonl $D
  trees $D/${part#*:}.jsonl                # of 1,992, 619 and 618 abstracts the parser loses 3, 0 and 2
done
U=(--steps ${STEPS:-200} --batch-size 32 --save-every 40)
EDU=(--units-taken 4) SENTENCE=(--level sentence --units-taken 1)
table $OUT scitldr_edu $D "${U[@]}" "${EDU[@]}"
table $OUT scitldr_sentence $D "${U[@]}" "${SENTENCE[@]}"
table $OUT scitldr_edu_balanced $D "${U[@]}" "${EDU[@]}" --balanced True
table $OUT scitldr_sentence_balanced $D "${U[@]}" "${SENTENCE[@]}" --balanced True
# The held-out test set, which chose nothing: train, validation and test as published.
FOLDS=none table $OUT scitldr_edu_test $D "${U[@]}" "${EDU[@]}"
FOLDS=none table $OUT scitldr_sentence_test $D "${U[@]}" "${SENTENCE[@]}"
# Sentences without trees, 20 seeds; as run: commit c23835c, today's oracle. Rates, by the labels of 55308d3: of six from 0.0005 to 0.016 the best in validation ROUGE-2 over two seeds.
encoder $S "${SENTENCE[@]}"
W=("${ENCODER[@]}" "${U[@]}" --data $S "${SENTENCE[@]}")
for s in ${SEEDS:-$(seq 0 19)}; do for a in ${ONLY:-dot none previous}; do
  rate=0.002 && [ $a = dot ] && rate=0.008
  train runs/own/$a-seed$s $a "${W[@]}" --learning-rate $rate --seed $s
  rows runs/own/$a-seed$s $a $S
done; done
baselines runs/own/$a-seed$s $S   # Lead and Oracle, by the numbers of any run
MINUS="none previous" compare $OUT/own_rate_test.csv runs/own/*.jsonl
# EDUs: 20 seeds on the published parts, the head with its own rate, chosen in the same way.
encoder $D
W=("${ENCODER[@]}" "${U[@]}" --data $D "${EDU[@]}")
for s in ${SEEDS:-$(seq 0 19)}; do for a in ${ONLY:-none d_tree c_tree_nuclearity $CONTROLS dot}; do
  rate=0.002 && [ $a = dot ] && rate=0.001
  train runs/seeds/$a-seed$s $a "${W[@]}" --learning-rate $rate --seed $s
  rows runs/seeds/$a-seed$s $a $D
done; done
W=("${ENCODER[@]}" --data $D "${EDU[@]}" --steps $((2 * ${STEPS:-200})) --batch-size 32 --save-every 40)
for s in ${SEEDS:-0 1 2 3 4}; do for a in ${ONLY:-none dot}; do  # twice the updates
  rate=0.002 && [ $a = dot ] && rate=0.001
  train runs/seeds/$a-longer-seed$s $a "${W[@]}" --learning-rate $rate --seed $s
  rows runs/seeds/$a-longer-seed$s $a-longer $D
done; done
MINUS="none dot previous c_tree_nuclearity d_tree-shuffled c_tree_nuclearity-shuffled none-longer" \
  compare $OUT/scitldr_edu_seeds_test.csv runs/seeds/*.jsonl
# Section 5.2 as in the paper: 1,000 abstracts, both sizes. Trees of the first 1,250 and 200 abstracts of train and dev, in seven
# folds of 207; draw k is of fold k's 1,034 for training. The table is of float32: 60 seconds a run.
L=data/scitldr_1450
mkdir -p $L
head -n 1250 "$SCITLDR/train.jsonl" > $L/train.jsonl
head -n 200 "$SCITLDR/dev.jsonl" > $L/validation.jsonl
for part in train validation; do
  cp -r $D/$part $L
  trees $L/$part.jsonl
done
[ -d $L-folds ] || python -m $DTA.experiments.folds $L --out $L-folds --folds 7
for size in "" -balanced; do
  for k in ${SEEDS:-0 1 2 3 4}; do
    encoder $L-folds/$k
    extra="d_tree-shuffled fixed_random" && [ $size ] && extra=
    for a in ${ONLY:-none dot d_tree c_tree c_tree_nuclearity $extra}; do
      train runs/low-1000$size/$a-seed$k $a "${ENCODER[@]}" "${U[@]}" --data $L-folds/$k "${EDU[@]}" --examples 1000 \
        --seed $k --mixed-precision no ${size:+--balanced True}
      rows runs/low-1000$size/$a-seed$k $a $L-folds/$k
    done
    python -m $DTA.experiments.controls predict runs/low-1000$size/$a-seed$k --data $L-folds/$k --take lead --overwrite \
      --out runs/low-1000$size/lead-seed$k.jsonl
  done
  MINUS="none dot c_tree c_tree_nuclearity d_tree-shuffled fixed_random" draws runs/low-1000$size $OUT/low_resource_1000$size.csv
done
# ROUGE-1 of each draw: RESULTS has Student's t of the five differences.
python - runs/low-1000 runs/low-1000-balanced > $OUT/low_resource_1000_draws.csv <<'END'
import json, sys
from pathlib import Path
from shared import rouge
print("sizes,system,draw,rouge1")
for folder in map(Path, sys.argv[1:]):
    for path in sorted(folder.glob("*-seed*.jsonl")):
        system, draw = path.stem.rsplit("-seed", 1)
        rows = [json.loads(line) for line in path.open()]
        scores = rouge.score([row["prediction"] for row in rows], [row["references"] for row in rows])
        print("balanced" if "balanced" in folder.name else "default", system, draw, f"{scores['rouge1'].mean():.4f}", sep=",")
END
python -m $DTA.experiments.figures runs/figures $OUT/scitldr_*.csv && cp runs/figures/claims.png $OUT
