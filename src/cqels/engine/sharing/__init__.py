"""Sharing between queries: pipelines of one template, joins in common, thresholds in order."""
