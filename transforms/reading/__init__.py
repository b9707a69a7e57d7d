"""Reads TFRecords back, ours and others': what is where, what is in a record. No Beam, no TensorFlow."""
