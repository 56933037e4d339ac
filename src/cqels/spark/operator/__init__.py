"""The engine inside Spark's stateful operator, and its memory as files."""
