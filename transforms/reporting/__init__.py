"""report.html: what a dataset is, to look at. No Beam, no TensorFlow."""
