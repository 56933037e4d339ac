"""The engine in this process: queries registered over streams and static data, answered element by element."""
