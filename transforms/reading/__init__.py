"""Reads TFRecords back, ours and others'. No Beam, no TensorFlow."""
