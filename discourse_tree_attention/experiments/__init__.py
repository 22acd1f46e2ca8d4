"""The laboratory: the figures, speed and comparisons of the paper."""
