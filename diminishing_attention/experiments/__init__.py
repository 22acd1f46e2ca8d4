"""The laboratory: figures, Table 2, speed, and what was found on each corpus."""
