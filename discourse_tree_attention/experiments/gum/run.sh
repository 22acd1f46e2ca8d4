#!/usr/bin/env bash
# GUM with gold trees: Tables 2 and 3, low resource. In the repository's top folder:
#   discourse_tree_attention/experiments/gum/run.sh GUM     a folder of train.jsonl, dev.jsonl, train/ID.dis, dev/ID.dis
# 22 CPU seconds a run. bf16: CPUs differ in the last digits, and a training in more.
source discourse_tree_attention/experiments/table.sh
GUM=$1 OUT=$DTA/experiments/gum U=(--steps ${STEPS:-240})
table $OUT gum_edu "$GUM" "${U[@]}"
# Is it the length? The documents with fewer EDUs than the median, and the others; ROUGE-1 alone goes into the table.
python - runs/gum_edu <<'END'
import json, statistics, sys
from pathlib import Path
files = [file for file in Path(sys.argv[1]).glob("*/*-seed*.jsonl")]
rows = {file: [json.loads(line) for line in file.open()] for file in files}
middle = statistics.median({row["id"]: row["units"][1] for own in rows.values() for row in own}.values())
for file, own in rows.items():
    for half in ("short", "long"):
        part = [row for row in own if (row["units"][1] < middle) == (half == "short")]
        Path("runs/gum_halves", half).mkdir(parents=True, exist_ok=True)
        Path("runs/gum_halves", half, f"{file.parent.name}-{file.name}").write_text("".join(json.dumps(row) + "\n" for row in part))
END
shopt -s extglob
for half in short long; do
  MINUS="none previous c_tree_nuclearity" compare runs/gum_halves/$half.csv \
    runs/gum_halves/$half/*-@(none|d_tree|c_tree|c_tree_nuclearity|fixed_random|previous|dot)-seed*.jsonl
  grep ,rouge1, runs/gum_halves/$half.csv | sed "s/^[^,]*/& ($half half)/" >> $OUT/gum_edu.csv
done
SYSTEMS=${ONLY:-none dot d_tree c_tree c_tree_nuclearity} table $OUT gum_sentence "$GUM" "${U[@]}" --level sentence
for n in ${SIZES:-20 60 123}; do for k in ${SEEDS:-0 1 2 3 4}; do                     # Section 5.2: draw k is tested on fold k
  encoder "$GUM-folds/$k"
  for a in ${ONLY:-none dot c_tree_nuclearity d_tree}; do
    train runs/low-gum/$a-n$n-seed$k $a "${ENCODER[@]}" "${U[@]}" --data "$GUM-folds/$k" --examples $n --seed $k
    rows runs/low-gum/$a-n$n-seed$k $a-n$n "$GUM-folds/$k"
  done
done; done
MINUS="none-n20 none-n60 none-n123" draws runs/low-gum $OUT/low_resource_gum.csv
