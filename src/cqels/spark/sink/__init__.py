"""How results leave: exactly-once files, Parquet, DataFrames, text formats."""
