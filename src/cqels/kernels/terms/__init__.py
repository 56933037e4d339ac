"""Terms in the arena: dictionary encoding, XML Schema values, sort keys and texts of columns."""
