#!/usr/bin/env bash
# A tagger on papers, by itself. In the top folder: head_masking/experiments/aclsum/run.sh ENCODER   (pip install aclsum)
set -euo pipefail
python -m head_masking.train --preset tagger --out runs/hm-aclsum --encoder "$1" --data aclsum --batch-size 8 --steps 400 --resume
python -m head_masking.evaluate --tagger runs/hm-aclsum --data aclsum
