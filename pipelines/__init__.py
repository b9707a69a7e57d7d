"""The jobs people run. Importing this package imports no Beam."""
