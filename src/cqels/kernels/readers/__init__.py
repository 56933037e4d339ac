"""From bytes of lines and records straight to encoded triples, and predicate pushdown over them."""
