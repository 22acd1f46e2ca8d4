"""The laboratory: figures, Table 2, speed, released checkpoints, and what was found on each
corpus.
"""
