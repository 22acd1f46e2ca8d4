"""Beyond the paper, a control without training: sentences chosen by the mean of their words' keys.

python -m encdec_sentence_sparse.experiments.mean_key RUN --data toy --split test --r 5 \\
    --system mean_key.r5

The flags are those of `predict`, which without --system names the output like a learned map's.
RUN is a run of --task base or sparse, or a BART.
"""

from collections.abc import Sequence

from torch import Tensor

from shared.run import one_line_errors, read_flags

from .. import predict
from ..fast_attention import FastAttention
from ..loading import load_run_or_bart
from ..model import SentenceSparseBart, add_approximator
from ..selection import Sentences, sentence_softmax


class MeanKeyAttention(FastAttention):
    """Its mode "approx" is saliency as if all words of a sentence had its mean key."""

    def approximate(self, hidden: Tensor, sentence_keys: Tensor, sentences: Sentences) -> Tensor:
        """(B, H, Q, N) from (B, Q, D) and the mean keys (B, H, N, K)."""
        log_words = sentences.membership.sum(1).clamp_min(1).log()[:, None, None]  # (B, 1, 1, N)
        logits = self.scaled_queries(hidden) @ sentence_keys.transpose(-1, -2)
        return sentence_softmax(logits + log_words, sentences.exists)


def use_mean_keys(model: SentenceSparseBart) -> SentenceSparseBart:
    """Turn a model without a map into one whose mode "approx" compares queries with mean keys.

    W^K begins as the words' map and is linear, biases included: it takes the mean state to the mean
    key.
    """
    add_approximator(model, "mean")
    for attention in model.attentions:
        attention.__class__ = MeanKeyAttention
    return model


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(predict.Options, arguments, __doc__)
    run = load_run_or_bart(options.run)
    if run.model.sentence_encoder is not None:
        raise ValueError(f"{options.run} has a learned map: give the run that it started from")
    use_mean_keys(run.model)
    predict.answer(options, run)


if __name__ == "__main__":
    main()
