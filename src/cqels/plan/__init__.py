"""The plan of a query: algebra, binder, functions, rewrite rules, explanation."""
