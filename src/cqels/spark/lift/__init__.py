"""From rows of any source to blocks of encoded elements, with predicate pushdown."""
