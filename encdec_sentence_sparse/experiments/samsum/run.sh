#!/usr/bin/env bash
# SAMSum, turns as sentences (Tables 2 to 6; Figures 1, 2, 5, 6, 7). In the repository's top folder:
#   encdec_sentence_sparse/experiments/samsum/run.sh DATA DIALOGSUM SCITLDR    folders of JSON lines; two CPU hours a seed on one core
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/samsum R=runs/sparse-samsum
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
for s in 0 1 2; do
  run train --out $R/start-$s --data "$1" --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 \
    --positions 300 --dropout 0.1 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --steps 2500 --seed $s --resume
  run train --out $R/base-$s --init $R/start-$s --learning-rate 3e-4 --warmup 50 --steps 600 --save-every 100 --seed $s --resume
  C=(--steps 300 --warmup 50 --save-every 100 --seed $s --resume)
  run train --task kl --out $R/kl-$s --init $R/base-$s --learning-rate 1e-3 "${C[@]}"
  I=(--task integrated --init $R/kl-$s --learning-rate 3e-4 "${C[@]}")
  run train --out $R/apx-$s "${I[@]}" --select approx --r 2
  run train --out $R/control-$s "${I[@]}" --kl-weight 0 --r 99   # as long, without a selection and without the KL term
  E=($R/{base,kl,apx,control}-$s --r 2 --no-repeat-ngram-size 3 --seed $s)
  run evaluate "${E[@]}" --split validation --limit 400 --predictions $R/predictions_$s --csv $OUT/samsum_$s.csv
  run evaluate "${E[@]}" --split test --predictions $R/test_$s --csv $OUT/samsum_test_$s.csv   # once, after all choices
done
run experiments.tables $OUT/samsum_[012].csv
run experiments.tables $OUT/samsum_test_[012].csv
# differences.csv. Its Lead-3: d = shared.data.load(DATA, "test"); shared.rouge.score([e.document[:3] for e in d], [e.references for e in d])
for p in $R/predictions $R/test; do
  for d in "base.ideal.r2 base.full" "base.random.r2 base.full" "base.mean_key.r2 base.full" "base.model_free-elu.r2 base.full" \
    "base.model_free-relu.r2 base.full" "kl.approx.r2 base.full" "kl.approx.r2 base.mean_key.r2" "kl.approx.r2 base.random.r2" \
    "apx.approx.r2 control.approx.r2" "apx.approx.r2 control.full" "control.approx.r2 control.full" "apx.approx.r2 kl.approx.r2" \
    "control.full base.full"; do run experiments.difference ${p}_{0,1,2} --systems $d; done
done
# The other systems, one seed: of an earlier base (3,000 updates in place of 2,500 + 600) and r 3 are earlier_*.csv and the figures.
C=(--steps 300 --warmup 50 --patience 0 --resume) I=(--task integrated --init $R/kl-0 --learning-rate 3e-4 "${C[@]}")
run train --out $R/apx-r3-0 "${I[@]}" --select approx --r 3
run train --out $R/idl-0 "${I[@]}" --select ideal --r 3
run train --out $R/mix-0 "${I[@]}" --select mix --mix-steps 300 --r 3
for g in 0 0.1 1; do run train --task sparse --out $R/sparse$g-0 --init $R/base-0 --learning-rate 3e-4 "${C[@]}" --gamma $g; done
E=(--split validation --limit 400 --no-repeat-ngram-size 3)
run evaluate $R/{base,kl,apx-r3,control,idl,mix,sparse0,sparse0.1,sparse1}-0 --r 3 2 5 "${E[@]}" --csv $OUT/samsum_more_0.csv
run train --out $R/select-0 "${I[@]}" --select approx --r 3 --kl-weight 0   # the selection without the KL term
run train --out $R/kl99-0 "${I[@]}" --select approx --r 99                  # the KL term without a selection
run evaluate $R/{select,kl99}-0 --r 3 "${E[@]}" --csv $OUT/samsum_cause_0.csv
run experiments.figures $OUT/samsum_more_0.csv --out $OUT
M=(--split validation --no-repeat-ngram-size 3)
run experiments.measures $R/{base,sparse0,sparse0.1,sparse1}-0 --limit 400 "${M[@]}" --json $R/samsum.json
run experiments.measures $R/base-0 --data "$2" --limit 50 "${M[@]}" --json $R/dialogsum.json
run experiments.measures $R/base-0 --data "$3" --limit 50 "${M[@]}" --json $R/scitldr.json
run experiments.figures --attention $R/{samsum,dialogsum,scitldr}.json --out $OUT
