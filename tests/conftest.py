"""Settings of all tests."""

import os

from hypothesis import settings

# A timing is never asserted: a shared machine may stall anywhere.
settings.register_profile("recordmill", deadline=None)
settings.load_profile("recordmill")

# TensorFlow tells at length which instructions it could use.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
