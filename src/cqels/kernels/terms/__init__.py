"""Terms in the arena: dictionary encoding, XML Schema values, sort keys, trees of them, and texts of columns."""
