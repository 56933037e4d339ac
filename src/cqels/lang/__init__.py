"""The language: grammar, parser, syntax tree and dialects. Nothing here knows what a query means."""
