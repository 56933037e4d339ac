"""Operators and their state, in the arena: plans become programs and descriptors that the kernels run."""
