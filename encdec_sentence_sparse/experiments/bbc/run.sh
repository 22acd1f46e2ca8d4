#!/usr/bin/env bash
# Extractive news, the paper's kind of text: 3 of 12 sentences at a step. In the repository's top folder:
#   encdec_sentence_sparse/experiments/bbc/run.sh DATA BART      two hours on one core
# DATA: train.jsonl, validation.jsonl, test.jsonl, which head_masking's experiments.data bbc writes of BBC's articles.
# BART: one that was trained on them, as bart-1/model of head_masking/experiments/bbc/run.sh.
set -euo pipefail
DATA=$1 BART=$2 OUT=encdec_sentence_sparse/experiments/bbc R=runs/sparse-bbc
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
T=(--data "$DATA" --max-source 400 --max-target 224 --batch-size 8 --r 3 --resume)
for s in 0 1 2; do   # three maps of one summariser
  run train --task kl --model "$BART" --out $R/kl-$s "${T[@]}" --learning-rate 1e-3 --warmup 50 --steps 120 --save-every 60 --seed $s
done
D=(--data "$DATA" --split test --beam 1 --max-length 160 --no-repeat-ngram-size 3 --overwrite)
for mode in full ideal random; do   # the held-out test set, once; nothing was chosen
  run predict "$BART" "${D[@]}" --mode $mode --r 3 --system base.$mode --out $R/test/base.$mode.jsonl
done
run experiments.mean_key "$BART" "${D[@]}" --r 3 --system base.mean_key --out $R/test/base.mean_key.jsonl
for s in 0 1 2; do run predict $R/kl-$s "${D[@]}" --r 3 --system kl.approx --out $R/test/kl-$s.approx.jsonl; done
# Integrated training and its control: the same run trained equally long without a selection and the KL term.
I=(--task integrated --init $R/kl-0 --learning-rate 2e-4 --warmup 50 --steps 300 --save-every 100 --resume)
run train --out $R/apx-0 "${I[@]}" --select approx --r 3
run train --out $R/control-0 "${I[@]}" --kl-weight 0 --r 99
run train --out $R/follow-0 "${I[@]}" --kl-weight 0.2 --r 99   # a control whose map follows its decoder; see below
for name in apx control; do
  run predict $R/$name-0 "${D[@]}" --r 3 --system $name.approx --out $R/test/$name.approx.jsonl
done
run predict $R/control-0 "${D[@]}" --mode full --r 3 --system control.full --out $R/test/control.full.jsonl
python -m shared.score $R/test/{base.*,kl-?.approx}.jsonl --csv $OUT/test.csv --overwrite --minus base.full base.mean_key base.random
python -m shared.score $R/test/{base.full,kl-0.approx,apx.approx,control.*}.jsonl --csv $OUT/integrated.csv --overwrite \
  --minus base.full kl.approx control.full control.approx
run experiments.cross_entropy 3 validation 199 $R/{kl,apx,control}-0 > $R/cross_entropy.jsonl
python -m shared.score $R/cross_entropy.jsonl --metric none --csv $OUT/cross_entropy.csv --overwrite \
  --minus kl.full kl.approx.r3 control.approx.r3
run experiments.measures $R/kl-0 --split validation --csv $OUT/figure_1.csv --overwrite
# Figure 2 on news, on the validation split: 1, 2, 3, 5 and 8 sentences of 12, </s> among them. As run: the summariser and
# the first map were trained anew, by the commands above; Int-Apx and its control were not.
V=(--data "$DATA" --split validation --beam 1 --max-length 160 --no-repeat-ngram-size 3 --overwrite)
run predict "$BART" "${V[@]}" --mode full --system base.full --out $R/r/base.full.jsonl
run predict "$BART" "${V[@]}" --mode model_free --phi relu --r 3 --system base.model_free.r3 --out $R/r/base.model_free.3.jsonl
for r in 1 2 3 5 8; do
  for mode in ideal random; do
    run predict "$BART" "${V[@]}" --mode $mode --r $r --system base.$mode.r$r --out $R/r/base.$mode.$r.jsonl
  done
  run experiments.mean_key "$BART" "${V[@]}" --r $r --system base.mean_key.r$r --out $R/r/base.mean_key.$r.jsonl
  run predict $R/kl-0 "${V[@]}" --r $r --system kl.approx.r$r --out $R/r/kl.approx.$r.jsonl
done
python -m shared.score $R/r/*.jsonl --csv $OUT/r.csv --overwrite --minus base.full base.mean_key.r{1,2,3}
run experiments.figures --out $OUT --scores $OUT/r.csv
# Int-Apx beside the control whose map follows, on the validation split. As run: from this part's map, both stopped after 200 updates.
for name in apx follow; do run predict $R/$name-0 "${V[@]}" --r 3 --system $name.approx.r3 --out $R/int/$name.jsonl; done
python -m shared.score $R/int/*.jsonl $R/r/{base.full,kl.approx.3}.jsonl --csv $R/int.csv --overwrite --minus follow.approx.r3 kl.approx.r3 base.full
grep "^apx\|^follow" $R/int.csv >> $OUT/r.csv
# Integrated training where the map alone loses: r 1, the held-out test set, two maps of one summariser. The control's map follows its
# decoder. As run: commit 55308d3, BART as bart-3 of head_masking/experiments/bbc/run.sh, trained with --mixed-precision bf16.
O=$R/one
for s in ${SEEDS:-0 1}; do
  run train --task kl --model "$BART" --out $O/kl-$s "${T[@]}" --learning-rate 1e-3 --warmup 50 --steps 120 --save-every 60 --seed $s \
    --mixed-precision bf16
  I=(--task integrated --init $O/kl-$s --learning-rate 2e-4 --warmup 50 --steps 300 --save-every 100 --seed $s --resume)
  run train --out $O/apx-$s "${I[@]}" --select approx --r 1
  run train --out $O/follow-$s "${I[@]}" --kl-weight 0.2 --r 99
  for name in kl apx follow; do
    run predict $O/$name-$s "${D[@]}" --r 1 --system $name.approx --out $O/test/$name-$s.jsonl
  done
done
for mode in full ideal; do run predict "$BART" "${D[@]}" --mode $mode --r 1 --system base.$mode --out $O/test/base.$mode.jsonl; done
python -m shared.score $O/test/*.jsonl --csv $OUT/r_1_test.csv --overwrite --minus base.full kl.approx follow.approx
