"""Data structures in the arena: hash tables, row storage and indexes, queues of deltas."""
