"""The people of the library by their numbers: number 0 has written most, and is called as in SP2Bench."""

from __future__ import annotations

_GIVEN_NAMES = """
    Paul Ada Alan Alice Anna Barbara Ben Carl Clara Dan Diana Donald Edgar Edith Emma Erik Eva Felix Frances Frank
    Grace Hanna Hans Ida Igor Irene Jan Jim John Karen Kim Kurt Leslie Lin Maria Max Mei Nina Olga Oscar Peter Rosa
    Ruth Sam Sofia Tim Tony Ute Vera Wei
"""
_FAMILY_NAMES = """
    Erdoes Abel Adams Bach Baker Bauer Becker Bell Berg Black Bloch Bond Brandt Brown Bush Carter Chen Clark Cook
    Cox Davis Diaz Dietz Dunn Ebert Ellis Evans Fischer Ford Fox Franke Garcia Gray Green Haas Hall Harris Hill Hoffmann
    Hughes Huang Jansen Jones Kaiser Keller King Klein Koch Kraus Lang Lee Lewis Li Liu Lopez Maier Martin Meyer Miller
    Moore Nguyen Novak Olsen Park Perez Peters Phillips Pohl Quinn Reed Rossi Roth Sato Schmidt Silva Smith Stein Tanaka
    Vogel Wagner Weber
"""
_GIVEN, _FAMILY = _GIVEN_NAMES.split(), _FAMILY_NAMES.split()
_PAIRS = len(_GIVEN) * len(_FAMILY)
"""Their numbers, 50 and 81, share no factor: so many people have names that differ."""


def name(number: int) -> str:
    """A name that nobody else has: where the names are used up, a number follows, as in DBLP.

    >>> name(0), name(4051)
    ('Paul Erdoes', 'Ada Abel 0001')
    """
    again = number // _PAIRS
    plain = f"{_GIVEN[number % len(_GIVEN)]} {_FAMILY[number % len(_FAMILY)]}"
    return f"{plain} {again:04}" if again else plain


def person(number: int) -> str:
    """The IRI of a person. SP2Bench has blank nodes here, but no stream could name those."""
    return f"<http://localhost/persons/{name(number).replace(' ', '_')}>"
