"""An engine instance: what it runs, what it is given, its results and its state."""
