"""Recordmill's transforms. Importing this package imports no Beam: the spawned writers need none."""
