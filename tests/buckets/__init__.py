"""A bucket on loopback: what Cloud Storage does, its faults included, for the tests."""
