"""Operators (windows, joins, aggregation, ordering: deltas from queues, deltas to queues), and prefetch for them."""
