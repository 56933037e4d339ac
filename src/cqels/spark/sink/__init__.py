"""How results leave a pipeline: exactly-once files, Parquet, DataFrames, text formats."""
