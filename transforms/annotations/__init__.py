"""Annotations that follow their image: boxes, polygons, run lengths, masks, key points; no Beam."""
