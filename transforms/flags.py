"""Flags in messages."""

from __future__ import annotations

import shlex


def flag_with(flag: str, value: str) -> str:
    """A flag and its value as one can paste them into a shell: `--image_column 'Image Path'`."""
    between = "=" if value.startswith("-") else " "
    return f"{flag}{between}{shlex.quote(value)}"
