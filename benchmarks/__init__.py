"""Speed and memory, side by side with what people use instead."""
