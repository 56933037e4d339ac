"""The names that the city's data use: CityBench's vocabularies, and our own namespace for what is in the city."""

from __future__ import annotations

CITY = "http://cqels.org/city/"
CT = "http://www.insight-centre.org/citytraffic#"
SSN = "http://purl.oclc.org/NET/ssnx/ssn#"
SAO = "http://purl.oclc.org/NET/sao/"
TL = "http://purl.org/NET/c4dm/timeline.owl#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
XSD = "http://www.w3.org/2001/XMLSchema#"

PREFIXES = "".join(
    f"@prefix {name}: <{iri}> .\n"
    for name, iri in (("city", CITY), ("ct", CT), ("ssn", SSN), ("sao", SAO), ("tl", TL), ("xsd", XSD))
)
