"""report.html of a dataset. No Beam, no TensorFlow."""
