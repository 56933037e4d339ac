"""Files as sources of Spark: the catalogue of files, reading ahead, replay at the pace of the data."""
