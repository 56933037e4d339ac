"""The names of SPARQL's operators and built-in functions, how they are written, how many arguments each takes."""

from __future__ import annotations

ARITY: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("RAND", "NOW", "UUID", "STRUUID", "GETDURATION", "GETSTARTTIME", "GETENDTIME"), (0, 0)),
    **dict.fromkeys(
        (
            *("STR", "LANG", "DATATYPE", "BOUND", "IRI", "URI", "ABS", "CEIL", "FLOOR", "ROUND", "STRLEN", "UCASE"),
            *("LCASE", "ENCODE_FOR_URI", "YEAR", "MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ"),
            *("MD5", "SHA1", "SHA256", "SHA384", "SHA512", "ISIRI", "ISURI", "ISBLANK", "ISLITERAL", "ISNUMERIC"),
        ),
        (1, 1),
    ),
    **dict.fromkeys(
        ("LANGMATCHES", "CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER", "STRLANG", "STRDT", "SAMETERM"),
        (2, 2),
    ),
    "BNODE": (0, 1),
    "REGEX": (2, 3),
    "SUBSTR": (2, 3),
    "REPLACE": (3, 4),
    "IF": (3, 3),
    "CONCAT": (0, None),
    "COALESCE": (0, None),
}
"""Name to the least and the most arguments; None is any number."""

INFIX: dict[str, tuple[str, int]] = {
    "OR": ("||", 1),
    "AND": ("&&", 2),
    "EQ": ("=", 3),
    "NE": ("!=", 3),
    "LT": ("<", 3),
    "GT": (">", 3),
    "LE": ("<=", 3),
    "GE": (">=", 3),
    "ADD": ("+", 4),
    "SUBTRACT": ("-", 4),
    "MULTIPLY": ("*", 5),
    "DIVIDE": ("/", 5),
}
"""Operators between two expressions: the sign, and how tightly it binds."""

PREFIX = {"NOT": "!", "NEGATE": "-", "PLUS": "+"}
"""Operators before an expression."""

BY_SIGN = {sign: name for name, (sign, _) in INFIX.items()}
