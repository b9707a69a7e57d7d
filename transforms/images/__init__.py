"""Converts image files into the images of records: detects their format, checks, keeps or encodes them."""
