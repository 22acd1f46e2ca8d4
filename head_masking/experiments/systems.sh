# Sourced by the run.sh of each corpus, whose R is its folder of runs.
run() { python -m "head_masking.$1" "${@:2}"; }
heads() { cat "$R/heads/$1.heads"; }
table() { python -m shared.score "${@:2}" --csv "$1" --overwrite; }  # CSV FILE ...
# The words that masked heads see, as outputs of their own: Section 5 gives their ROUGE-1
words() { python -c 'import json, sys
for row in map(json.loads, sys.stdin): print(json.dumps(row | {"prediction": row["kept"], "system": sys.argv[1]}))' "$1"; }
# Outputs without masks, with the oracle's and with each tagger's, and the words that the taggers select; V: --data DATA, decoding
systems() {  # DIR MODEL HEADS TAGGER ...
  local out=$1 model=$2 name; name=$(basename "$2")
  run predict "$model" "${V[@]}" --out "$out/$name.jsonl"
  run predict "$model" "${V[@]}" --oracle --heads "$3" --out "$out/$name+oracle.jsonl"
  for tagger in "${@:4}"; do
    local selector; selector=$(basename "$tagger")
    run predict "$model" "${V[@]}" --tagger "$tagger" --heads "$3" --out "$out/$name+$selector.jsonl"
    words "${selector%-[0-9]}" < "$out/$name+$selector.jsonl" > "$out/$selector.jsonl"
  done
}
