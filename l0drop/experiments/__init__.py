"""What the figures, speed and comparisons of the paper need; nothing outside it imports it."""
