"""Results and rejected input of a batch, and the files that they go to exactly once."""
