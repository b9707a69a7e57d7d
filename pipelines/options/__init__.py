"""Flags, and the checked options of each command that they become. Importing this imports no Beam."""
