"""The rewrite rules: pure functions from plan to plan, and the order in which they are applied."""
