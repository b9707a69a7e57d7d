"""Conversions on other runners of Beam: Flink, embedded and as a cluster, and Prism."""
