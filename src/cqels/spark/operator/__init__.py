"""The stateful operator of Spark: an engine instance for each group of rows, its program, its commands, its arena."""
