"""What the figures, speed and comparisons of the paper need; nothing on the ground floor imports it."""
