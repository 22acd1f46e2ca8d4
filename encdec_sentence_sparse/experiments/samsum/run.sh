#!/usr/bin/env bash
# SAMSum, turns as sentences (Tables 2 to 6; Figures 1, 2, 5, 6, 7). In the repository's top folder:
#   encdec_sentence_sparse/experiments/samsum/run.sh DATA DIALOGSUM SCITLDR    folders of JSON lines; two CPU hours on one core
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/samsum R=runs/sparse-samsum
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
run train --out $R/base-0 --data "$1" --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 \
  --positions 320 --dropout 0.1 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --steps 3000 --resume
C=(--steps 300 --warmup 50 --patience 0 --mixed-precision bf16 --resume)
run train --task kl --out $R/kl-0 --init $R/base-0 "${C[@]}"
I=(--task integrated --init $R/kl-0 --learning-rate 3e-4 "${C[@]}")
run train --out $R/apx-0 "${I[@]}" --select approx --r 3
run train --out $R/idl-0 "${I[@]}" --select ideal --r 3
run train --out $R/mix-0 "${I[@]}" --select mix --mix-steps 300 --r 3
run train --out $R/control-0 "${I[@]}" --kl-weight 0 --r 99   # as long, without a selection and without the KL term
for g in 0 0.1 1; do run train --task sparse --out $R/sparse$g-0 --init $R/base-0 --learning-rate 3e-4 "${C[@]}" --gamma $g; done
E=(--split validation --limit 400 --no-repeat-ngram-size 3 --predictions $R/predictions_0)
run evaluate $R/{base,kl,apx,control,idl,mix,sparse0,sparse0.1,sparse1}-0 --r 3 2 5 "${E[@]}" --csv $OUT/samsum_0.csv
run train --out $R/select-0 "${I[@]}" --select approx --r 3 --kl-weight 0   # the selection without the KL term
run train --out $R/kl99-0 "${I[@]}" --select approx --r 99                  # the KL term without a selection
run evaluate $R/{select,kl99}-0 --r 3 "${E[@]}" --csv $OUT/samsum_cause.csv
run experiments.tables $OUT/samsum_0.csv
run experiments.difference $R/predictions_0 --systems apx.approx.r3 control.approx.r3
run experiments.figures $OUT/samsum_0.csv --out $OUT
M=(--split validation --no-repeat-ngram-size 3)
run experiments.measures $R/{base,sparse0,sparse0.1,sparse1}-0 --limit 400 "${M[@]}" --json $R/samsum.json
run experiments.measures $R/base-0 --data "$2" --limit 50 "${M[@]}" --json $R/dialogsum.json
run experiments.measures $R/base-0 --data "$3" --limit 50 "${M[@]}" --json $R/scitldr.json
run experiments.figures --attention $R/{samsum,dialogsum,scitldr}.json --out $OUT
