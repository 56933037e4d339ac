"""State of an engine: snapshots, what windows hold in a portable form, and budgets of memory and time."""
