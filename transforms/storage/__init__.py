"""Bytes in and out of storage. Imports no Beam."""
