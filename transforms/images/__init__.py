"""Bytes of an image in, the image of a record out: format told, checked, kept or stored anew."""
