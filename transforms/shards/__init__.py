"""Splits, shards and order from hashes; whole shards written, in this process or in spawned ones. No Beam."""
