"""CQELS: continuous SPARQL queries over RDF streams and Linked Data."""
