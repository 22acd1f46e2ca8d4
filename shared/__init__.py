"""The utility beside the five papers: data, run folders, ROUGE with its statistics.

No paper's idea lives here.
"""
