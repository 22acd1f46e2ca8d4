"""D20: a lambda of Eq. (12) that holds a sparsity; the paper searches for a constant one."""

from dataclasses import dataclass

FOLLOW = 0.02  # how fast the multiplier follows
DAMP = 8.0  # the proportional part, against swings


@dataclass
class SparsityControl:
    """A Lagrange multiplier: it rises while a batch prunes too little and falls while too much.

    Its fields change while it works; a checkpoint saves them. Shares are of source encodings, in
    [0, 1].
    """

    aim: float  # share to prune in the batches
    open_until: float  # step up to which the gates are held open
    multiplier: float = 0.0
    pruned: float = 0.0  # running mean of the batches' shares, from 0: too low for some 60 batches

    def follow(self, pruned: float) -> float:
        """lambda for a batch that prunes this share; below 0 where that is far more than wanted."""
        gap = self.aim - pruned
        self.pruned += (pruned - self.pruned) / 20
        self.multiplier += FOLLOW * gap
        return self.multiplier + DAMP * gap

    def correct(self, target: float, sparsity: float) -> None:
        """Raise the aim by what the last batches prune more than the validation data."""
        self.aim = target + self.pruned - sparsity
