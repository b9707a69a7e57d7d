"""Runs a job: on this machine, on Dataflow, or on another runner of Beam."""
