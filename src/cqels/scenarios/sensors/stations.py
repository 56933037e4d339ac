"""Weather stations, the places near them and what is known of hurricanes: the static data.  No weather here."""

from __future__ import annotations

from collections.abc import Iterator

SSW = "http://knoesis.wright.edu/ssw/"
OM = SSW + "ont/sensor-observation.owl#"
WEATHER = SSW + "ont/weather.owl#"
GEO = "http://www.w3.org/2003/01/geo/wgs84_pos#"
GN = "http://www.geonames.org/ontology#"
PLACES = "http://sws.geonames.org/"
DBR = "http://dbpedia.org/resource/"
DBO = "http://dbpedia.org/ontology/"
DBP = "http://dbpedia.org/property/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
SAME = "http://www.w3.org/2002/07/owl#sameAs"
XSD = "http://www.w3.org/2001/XMLSchema#"

NEAR = 3
"""Stations at each place."""
FAIR, BLIZZARD, HURRICANE, FOG = range(4)
KINDS = (FAIR, BLIZZARD, HURRICANE, FOG, FAIR)
"""What the weather may be like at a place, by its number."""
STATES = ("Texas", "Utah", "Florida", "California", "Ohio")
PROPERTIES = ("AirTemperature", "WindSpeed", "WindDirection", "RelativeHumidity", "Visibility")
HURRICANES = (
    ("Dolly", 85, 1_600),
    ("Gustav", 110, 4_600),
    ("Ike", 100, 29_500),
    ("Katrina", 125, 108_000),
    ("Andrew", 165, 27_300),
)
"""Names with the highest wind at landfall in miles per hour and the damage in millions of dollars, roughly."""
PRECIPITATION = ("Rainfall", "Snowfall", "Hail")


def kind_of(place: int) -> int:
    return KINDS[place % len(KINDS)]


def station_name(station: int) -> str:
    return f"S{station:04d}"


def point(station: int) -> tuple[str, str, str]:
    """Latitude, longitude and altitude, as they are written."""
    place, number = divmod(station, NEAR)
    return f"{25 + place * 7 % 240 / 10 + number / 100:.4f}", f"{-80 - place * 11 % 400 / 10:.4f}", f"{10 + station}"


def station_lines(places: int) -> Iterator[str]:
    """The stations: their names, locations and elevations, what is near them; and the classes of precipitation."""
    for kind in PRECIPITATION:
        yield _line(f"{WEATHER}{kind}Observation", f"{RDFS}subClassOf", f"<{WEATHER}PrecipitationObservation>")
    for station in range(places * NEAR):
        name = station_name(station)
        system, where = f"{SSW}System_{name}", f"{SSW}point_{name}"
        yield _line(system, f"{RDF}type", f"<{OM}System>")
        yield _line(system, f"{OM}ID", f'"{name}"')
        yield _line(system, f"{OM}processLocation", f"<{where}>")
        for each in PROPERTIES:
            yield _line(system, f"{OM}parameter", f"<{WEATHER}_{each}>")
        yield _line(where, f"{RDF}type", f"<{GEO}Point>")
        for axis, value in zip(("lat", "long", "alt"), point(station), strict=True):
            yield _line(where, f"{GEO}{axis}", _float(value))
        place = station // NEAR
        yield from _near(name, "", f"{PLACES}{place}/", 0.5 + station % NEAR)
        if kind_of(place) == HURRICANE:
            yield from _near(name, "shore", f"{PLACES}{place}/shore/", 1.5 + station % NEAR)


def _near(station: str, what: str, place: str, miles: float) -> Iterator[str]:
    relation = f"{SSW}LocatedNearRel{station}{what}"
    yield _line(f"{SSW}System_{station}", f"{OM}hasLocatedNearRel", f"<{relation}>")
    yield _line(relation, f"{RDF}type", f"<{OM}LocatedNearRel>")
    yield _line(relation, f"{OM}distance", _float(f"{miles}"))
    yield _line(relation, f"{OM}uom", f"<{WEATHER}miles>")
    yield _line(relation, f"{OM}hasLocation", f"<{place}>")


def place_lines(places: int) -> Iterator[str]:
    """Cities in states, some of them large; an airport in each, and a shore where there are hurricanes."""
    for place in range(places):
        city, state = f"{PLACES}{place}/", f"{PLACES}{STATES[place % len(STATES)]}/"
        yield _line(state, f"{GN}name", f'"{STATES[place % len(STATES)]}"')
        yield from _feature(city, "P", "P.PPL", f"City {place}", state)
        yield _line(city, f"{GN}population", f'"{10_000 + place * 37_000 % 500_000}"^^<{XSD}integer>')
        yield from _feature(f"{city}airport/", "S", "S.AIRP", f"Airport of City {place}", state)
        yield _line(f"{city}airport/", f"{GN}parentFeature", f"<{city}>")
        if kind_of(place) == HURRICANE:
            yield from _feature(f"{city}shore/", "T", "T.SHOR", f"Shore of City {place}", state)


def _feature(iri: str, kind: str, code: str, name: str, state: str) -> Iterator[str]:
    yield _line(iri, f"{RDF}type", f"<{GN}Feature>")
    yield _line(iri, f"{GN}featureClass", f"<{GN}{kind}>")
    yield _line(iri, f"{GN}featureCode", f"<{GN}{code}>")
    yield _line(iri, f"{GN}name", f'"{name}"')
    yield _line(iri, f"{GN}parentADM1", f"<{state}>")


def history_lines(places: int) -> Iterator[str]:
    """Hurricanes of the past, and the heritage sites of the cities."""
    for name, winds, damages in HURRICANES:
        yield _line(f"{DBR}Hurricane_{name}", f"{RDF}type", f"<{DBO}Hurricane>")
        yield _line(f"{DBR}Hurricane_{name}", f"{DBP}1MinWinds", f'"{winds}"^^<{XSD}integer>')
        yield _line(f"{DBR}Hurricane_{name}", f"{DBP}damages", f'"{damages}"^^<{XSD}integer>')
    for place in range(places):
        yield _line(f"{DBR}City_{place}", SAME, f"<{PLACES}{place}/>")
        yield _line(f"{DBR}Heritage_{place}", f"{RDF}type", f"<{DBO}WorldHeritageSite>")
        yield _line(f"{DBR}Heritage_{place}", f"{DBO}location", f"<{DBR}City_{place}>")


def _line(subject: str, predicate: str, value: str) -> str:
    return f"<{subject}> <{predicate}> {value} .\n"


def _float(value: str) -> str:
    return f'"{value}"^^<{XSD}float>'
