"""Annotations that follow their image."""
