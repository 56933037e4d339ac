"""Operators: windows, joins, aggregation, ordering; each takes deltas from queues and adds deltas to queues."""
