"""Data structures in the arena: hash tables, row storage and indexes, B+trees, queues of deltas."""
