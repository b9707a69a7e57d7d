"""Splits, shards and order from hashes; plans, records, shard files and the manifest. No Beam."""
