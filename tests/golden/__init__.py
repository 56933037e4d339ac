"""State that releases have written, which every later one opens."""
