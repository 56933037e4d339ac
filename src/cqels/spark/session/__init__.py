"""The Spark session: its Java, its home, its settings and its end."""
