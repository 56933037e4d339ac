"""The driver: applications, runs, placement and migration of queries, checkpoints, global stages, metrics."""
