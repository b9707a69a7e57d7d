"""Speed and memory, compared with alternatives."""
