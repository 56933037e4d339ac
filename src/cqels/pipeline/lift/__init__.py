"""From the rows of a source to blocks of encoded elements for engine instances."""
