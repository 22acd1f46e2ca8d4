"""Peak memory of reading 32 summaries again for Figure 1, at BART-large's size with random weights (Linux, one CPU).

python -m encdec_sentence_sparse.experiments.memory
"""

import resource

import torch
from transformers.modeling_outputs import BaseModelOutput

from ..loading import Run
from ..model import SentenceSparseBart, bart_config
from .measures import read_again


@torch.inference_mode()
def main(B: int = 32, S: int = 1024, T: int = 200, N: int = 29, sizes=(50264, 1024, 4096, 16, 12, 1024)) -> int:
    """Print what the record holds, which is returned in bytes, and how the process grew; `sizes`: see `bart_config`."""
    model = SentenceSparseBart(bart_config(*sizes)).eval()
    ids = (torch.arange(S) * N // S).expand(B, S)
    states = BaseModelOutput(torch.randn(B, S, sizes[1]))
    source = {"sentence_ids": ids, "attention_mask": torch.ones_like(ids), "encoder_outputs": states}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record, _ = read_again(Run(None, model, None), source, torch.full((B, T + 1), 5))
    kept = sum(part.nbytes for layer in record for part in layer if part is not None)
    peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    print(f"kept {kept / 1e9:.2f} GB, peak {peak / 1e9:.1f} GB")
    return kept


if __name__ == "__main__":
    main()
