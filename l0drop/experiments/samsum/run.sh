#!/usr/bin/env bash
# SAMSum, summaries of dialogues (Table 2's CNN/Daily Mail in small). In the repository's top folder:
#   l0drop/experiments/samsum/run.sh DATA STANZA BART STRONGER       25 minutes a seed on one core, and 80 for the last part
# DATA holds train.jsonl, validation.jsonl, test.jsonl. BART-0, BART-1, BART-2: folders of transformers, BARTs trained on SAMSum
# (here base-0 to base-2 of encdec_sentence_sparse/experiments/samsum/run.sh: model/ and tokenizer/ in one folder, in its
# generation_config.json num_beams 4, no_repeat_ngram_size 3, max_length 80). STRONGER: one such folder, of that script's
# last part (runs/sparse-minilm/base-0), for the last part here.
set -euo pipefail
DATA="$1" STANZA="$2" BART="$3" OUT=l0drop/experiments/samsum R=runs/samsum
run() { python -m "l0drop.$1" "${@:2}"; }
for s in 0 1 2; do
  F=(--model $BART-$s --data "$DATA" --max-source 300 --max-target 80 --learning-rate 0.03 --warmup 50 --steps 300
    --mixed-precision bf16 --seed $s --resume)
  run train --out $R/longer-$s "${F[@]}" --l0drop none
  if [ $s = 0 ]; then   # lambda is chosen once, on the first half of validation: the smallest that prunes half of the units
    for l in 0.1 0.2 0.3 0.4; do run train --out $R/l0-$l-$s "${F[@]}" --l0drop output --l0-weight $l; done
    run evaluate $R/longer-0 $R/l0-0.?-0 --split validation --limit 409 --csv $OUT/lambda.csv
  fi
  run train --out $R/l0-0.3-$s "${F[@]}" --l0drop output --l0-weight 0.3
  run train --out $R/freq-$s "${F[@]}" --l0drop none --pattern freq   # a rule of Section 7 beside it
  for split in validation test; do   # test once, after all choices
    run evaluate $R/longer-$s $R/l0-0.3-$s $R/freq-$s --split $split --predictions $R/$split-$s
    python -m shared.score $R/$split-$s/*.jsonl --minus longer l0-0.3 --csv $OUT/${split}_$s.csv
  done
done
run evaluate $R/l0-0.3-0 --split validation --limit 200 --stanza "$STANZA" --csv $OUT/types.csv   # 3 minutes of tagging
# The four rules of Section 7 beside the gates, about as much pruned as in Table 2; a stronger BART, one seed.
F=(--model "$4" --data "$DATA" --max-source 300 --max-target 80 --learning-rate 0.03 --warmup 50 --steps 400 --batch-tokens 500
  --mixed-precision bf16 --resume)
run train --out $R/rules/longer-0 "${F[@]}" --l0drop none
run train --out $R/rules/l0-0 "${F[@]}" --l0drop output --target-sparsity 0.48
for p in pos freq group inv_freq; do
  run train --out $R/rules/$p-0 "${F[@]}" --l0drop none --pattern $p --stanza "$STANZA"
done
run evaluate $R/rules/*-0 --split test --predictions $R/rules/test   # held out; nothing was chosen
python -m shared.score $R/rules/test/*.jsonl --minus longer l0 --csv $OUT/rules_test.csv
run experiments.figures --claims l0drop/experiments --out l0drop/experiments   # of multi30k/*.csv, too
