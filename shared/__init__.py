"""The utility beside the five papers: data, ROUGE with its statistics, and timing. No paper's idea lives here."""
