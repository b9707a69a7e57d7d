"""Processes that run tasks and survive crashes; they know nothing of what the tasks do."""
