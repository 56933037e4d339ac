"""Lifting: from the rows of any source to blocks of encoded elements for the shuffle, with predicate pushdown."""
