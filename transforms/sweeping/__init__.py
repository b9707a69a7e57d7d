"""Measures image settings, and shows the results."""
