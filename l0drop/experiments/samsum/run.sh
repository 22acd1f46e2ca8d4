#!/usr/bin/env bash
# The CSVs were made by commit 55308d3 and before.
# SAMSum, summaries of dialogues (Table 2's CNN/Daily Mail in small). In the repository's top folder:
#   l0drop/experiments/samsum/run.sh DATA STANZA BART STRONGER       25 minutes a seed on one core, and 80 for the last part
# DATA holds train.jsonl, validation.jsonl, test.jsonl. BART-0, BART-1, BART-2: folders of transformers, BARTs trained on SAMSum
# (here base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model/ and tokenizer/ in one folder, in its
# generation_config.json num_beams 4, no_repeat_ngram_size 3, max_length 80). STRONGER: one such folder, of that script's
# last part (runs/sparse-minilm/base-0), for the last part here. SEEDS leaves some out.
set -euo pipefail
DATA="$1" STANZA="$2" BART="$3" OUT=l0drop/experiments/samsum R=runs/samsum
bart() { python -m l0drop.experiments.bart "$@"; }
# decode SPLIT FOLDER RUN...: outputs in FOLDER/NAME.jsonl
decode() {
  for r in "${@:3}"; do
    [ -e "$2/${r##*/}.jsonl" ] || bart predict "$r" --data "$DATA" --split "$1" --overwrite --out "$2/${r##*/}.jsonl"
  done
}
score() { python -m shared.score "$@" --overwrite; }
for s in ${SEEDS:-0 1 2}; do
  F=(--bart $BART-$s --data "$DATA" --max-source 300 --max-target 80 --learning-rate 0.03 --warmup 50 --steps 300
    --batch-tokens 1000 --accumulate 1 --mixed-precision bf16 --seed $s --resume)
  bart train --out $R/longer-$s "${F[@]}" --l0drop none
  if [ $s = 0 ]; then   # lambda is chosen once, on the first half of validation: the smallest that prunes half of the units
    for l in 0.1 0.2 0.3 0.4; do bart train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
    for r in longer-0 l0-0.1-0 l0-0.2-0 l0-0.3-0 l0-0.4-0; do
      [ -e $R/lambda/$r.jsonl ] || bart predict $R/$r --data "$DATA" --split validation --limit 409 --overwrite --out $R/lambda/$r.jsonl
    done
    score $R/lambda/{longer,l0-0.1,l0-0.2,l0-0.3,l0-0.4}-0.jsonl --csv $R/lambda.csv
  fi
  bart train --out $R/l0-0.3-$s "${F[@]}" --l0drop output --l0-weight 0.3
  bart train --out $R/freq-$s "${F[@]}" --l0drop none --rule freq   # a rule of Section 7 beside it
  decode test $R/test-$s $R/longer-$s $R/l0-0.3-$s $R/freq-$s   # once, after all choices
  score $R/test-$s/*.jsonl --minus longer l0-0.3 --csv $R/test-$s.csv
done
for s in ${SEEDS:-0 1 2}; do sed "1s/^/baseline,/; 2,\$s/^/$s,/" $R/test-$s.csv; done | awk 'NR == 1 || !/^baseline/' > $OUT/test.csv
# The four rules of Section 7 beside the gates, about as much pruned as in Table 2; a stronger BART, one seed.
F=(--bart "$4" --data "$DATA" --max-source 300 --max-target 80 --learning-rate 0.03 --warmup 50 --steps 400 --batch-tokens 500
  --accumulate 1 --mixed-precision bf16 --resume)
bart train --out $R/rules/longer-0 "${F[@]}" --l0drop none
bart train --out $R/rules/l0-0 "${F[@]}" --l0drop output --target-sparsity 0.48
for p in pos freq group inv_freq; do
  bart train --out $R/rules/$p-0 "${F[@]}" --l0drop none --rule $p --stanza "$STANZA"
done
decode test $R/rules/test $R/rules/{longer,l0,pos,freq,group,inv_freq}-0   # held out; nothing was chosen
score $R/rules/test/{longer,l0,pos,freq,group,inv_freq}-0.jsonl --minus longer l0 --csv $OUT/rules_test.csv
# The BART before the gates, decoded in the same way: one update at rate 0. As run: commit 55308d3, that BART, the control, the
# gates and the rules but pos trained anew.
bart train --out $R/rules/base-0 "${F[@]}" --l0drop none --learning-rate 0 --steps 1
decode test $R/rules/test $R/rules/base-0
score $R/rules/test/{base,longer,l0,freq,group,inv_freq}-0.jsonl --minus base longer l0 --csv $OUT/bart_test.csv
