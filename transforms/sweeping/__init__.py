"""What a sweep measures, and how it is shown."""
