"""Fuzzers of what reads images and annotations."""
