"""SPARQL's functions on strings and on terms as such (17.4.2 and 17.4.3), and the hash functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import quote

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.model.terms import XSD_STRING, Term, boolean
from cqels.model.values import INTEGER, ExpressionError, Number, joined_texts, literal_of, number_of, value_of
from cqels.plan.functions import regular_expressions

# --- arguments ------------------------------------------------------------------------------------------------------


def simple_text(term: Term) -> str:
    """The text of a string without a language."""
    if isinstance(term, Literal) and term.datatype == XSD_STRING:
        return term.value
    raise ExpressionError(f"not a string without a language: {term}")


def string_literal(term: Term) -> Literal:
    """The term, if it is a string with or without a language."""
    if isinstance(term, Literal) and (term.language is not None or term.datatype == XSD_STRING):
        return term
    raise ExpressionError(f"not a string: {term}")


def like(original: Literal, text: str) -> Literal:
    """A text in the language of another string."""
    if original.language is None:
        return Literal(text)
    return Literal(text, language=original.language, direction=original.direction)


def compatible(first: Term, second: Term) -> tuple[Literal, str]:
    """Two strings that go together (17.4.3.1.2): the second has the language of the first, or none."""
    left, right = string_literal(first), string_literal(second)
    if right.language is not None and (right.language, right.direction) != (left.language, left.direction):
        raise ExpressionError(f"the languages of {left} and {right} differ")
    return left, right.value


def integer(term: Term) -> int:
    number = number_of(term)
    if number.kind == INTEGER and isinstance(number.value, int):
        return number.value
    raise ExpressionError(f"not an integer: {term}")


# --- terms ----------------------------------------------------------------------------------------------------------


def text(term: Term) -> str:
    """STR: the IRI, or the lexical form exactly as it was written."""
    if isinstance(term, BlankNode):
        raise ExpressionError("a blank node has no text")
    return term.value


def lang(term: Term) -> Term:
    if isinstance(term, Literal):
        return Literal(term.language or "")
    raise ExpressionError(f"not a literal: {term}")


def datatype(term: Term) -> Term:
    if isinstance(term, Literal):
        return term.datatype
    raise ExpressionError(f"not a literal: {term}")


def typed(lexical: Term, type_: Term) -> Term:
    """STRDT."""
    if not isinstance(type_, NamedNode):
        raise ExpressionError(f"not an IRI: {type_}")
    try:
        return Literal(simple_text(lexical), datatype=type_)
    except ValueError as error:
        raise ExpressionError(str(error)) from error


def tagged(lexical: Term, tag: Term) -> Term:
    """STRLANG."""
    try:
        return Literal(simple_text(lexical), language=simple_text(tag))
    except ValueError as error:
        raise ExpressionError(str(error)) from error


def is_numeric(term: Term) -> Term:
    return boolean(isinstance(term, Literal) and isinstance(value_of(term), Number))


# --- strings --------------------------------------------------------------------------------------------------------


def length(term: Term) -> Term:
    return literal_of(Number(INTEGER, len(string_literal(term).value)))


def substring(source: Term, start: Term, size: Term | None = None) -> Term:
    """SUBSTR: characters count from 1, and the part before the first counts towards the size, as in fn:substring."""
    original = string_literal(source)
    first = integer(start) - 1
    last = len(original.value) if size is None else first + integer(size)
    return like(original, original.value[max(first, 0) : max(last, 0)])


def upper(term: Term) -> Term:
    return like(string_literal(term), string_literal(term).value.upper())


def lower(term: Term) -> Term:
    return like(string_literal(term), string_literal(term).value.lower())


def starts(first: Term, second: Term) -> Term:
    whole, part = compatible(first, second)
    return boolean(whole.value.startswith(part))


def ends(first: Term, second: Term) -> Term:
    whole, part = compatible(first, second)
    return boolean(whole.value.endswith(part))


def contains(first: Term, second: Term) -> Term:
    whole, part = compatible(first, second)
    return boolean(part in whole.value)


def before(first: Term, second: Term) -> Term:
    whole, part = compatible(first, second)
    found, mark, _ = whole.value.partition(part) if part else ("", "found", "")
    return like(whole, found) if mark else Literal("")


def after(first: Term, second: Term) -> Term:
    whole, part = compatible(first, second)
    _, mark, found = whole.value.partition(part) if part else ("", "found", whole.value)
    return like(whole, found) if mark else Literal("")


def encode_for_uri(term: Term) -> Term:
    return Literal(joined_texts("", [quote(string_literal(term).value, safe="")]))


def concatenation(*terms: Term) -> Term:
    """CONCAT: in the language of its arguments if they all have the same."""
    strings = [string_literal(term) for term in terms]
    joined = joined_texts("", [each.value for each in strings])
    tags = {(each.language, each.direction) for each in strings}
    return like(strings[0], joined) if len(tags) == 1 else Literal(joined)


def language_matches(tag: Term, pattern: Term) -> Term:
    """LANGMATCHES: basic filtering of RFC 4647."""
    language, wanted = simple_text(tag).lower(), simple_text(pattern).lower()
    if wanted == "*":
        return boolean(bool(language))
    return boolean(language == wanted or language.startswith(wanted + "-"))


def regex(source: Term, pattern: Term, flags: Term | None = None) -> Term:
    return boolean(
        regular_expressions.matches(
            string_literal(source).value, simple_text(pattern), simple_text(flags) if flags else ""
        )
    )


def replaced(source: Term, pattern: Term, replacement: Term, flags: Term | None = None) -> Term:
    original = string_literal(source)
    return like(
        original,
        regular_expressions.replace(
            original.value, simple_text(pattern), simple_text(replacement), simple_text(flags) if flags else ""
        ),
    )


def hashed(algorithm: str) -> Callable[[Term], Term]:
    """The function MD5, SHA1 and so on, by the name of the algorithm."""

    def digest(term: Term) -> Term:
        return Literal(hashlib.new(algorithm, simple_text(term).encode(), usedforsecurity=False).hexdigest())

    return digest
