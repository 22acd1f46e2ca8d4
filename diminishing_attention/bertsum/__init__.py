"""BERTSum, the second network of the paper: model, text, and the encoder under it."""
