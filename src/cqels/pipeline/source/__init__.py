"""Files as a source: which there are, how far a batch reads in each, and the reading of ranges."""
