"""Conversions whose bytes are recorded."""
