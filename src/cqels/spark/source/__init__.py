"""The file source: the catalog of files, offsets, the readers of workers, read-ahead, replay at a rate."""
