"""A model and batches in, a trained model and a stream of events out."""
