"""Other programs that users would write or install, which do the work of `recordmill convert`.

Each is run as `python -m benchmarks.peers.<name> WORK INPUT OUTPUT`. Those that use TensorFlow run in an
environment of their own, and import nothing of recordmill.
"""
