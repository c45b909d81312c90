"""Feed deep-learning training: read, decode, augment and move batches, on one machine or many."""
