"""Processes that run tasks and survive crashes; they know nothing of what the tasks do.

A crash, a hang, too much processor time or memory, a BadInput and any unexpected exception cost the item that
the task is at (`Worker.item`). A JobError, an error of the system (an OSError with a number) and an exception
outside of items end the job.
"""
