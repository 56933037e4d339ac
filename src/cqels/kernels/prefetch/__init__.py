"""Software prefetch: the cache lines that arriving and expiring rows will touch are requested ahead of their turn."""
