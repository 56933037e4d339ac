"""Plans as SPARQL text, for Oxigraph or an endpoint to evaluate."""
