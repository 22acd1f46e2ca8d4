"""The laboratory: what the figures, speed and comparisons of the paper need, above the package that
is the paper.
"""
