"""Trains an image classifier on a dataset of recordmill."""
