"""The value of an expression for one solution: SPARQL 1.1's operators and built-ins, casts and time functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.builtins import ARITY
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var, operands_of, walk
from cqels.model.hash_partition import part_of
from cqels.model.iri import resolve
from cqels.model.numbers import EXACT
from cqels.model.terms import CQ, Term, boolean
from cqels.model.values import (
    Duration,
    ExpressionError,
    Length,
    compare,
    date_time_literal,
    effective_boolean,
    equal,
    literal_of,
)
from cqels.plan.functions import arithmetic, strings
from cqels.plan.functions.casts import CASTS
from cqels.plan.functions.context import Context
from cqels.plan.functions.volatile import draw

CQ_NOW = CQ + "now"

OPERATORS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("OR", "AND"), (2, None)),
    **dict.fromkeys(("EQ", "NE", "LT", "GT", "LE", "GE", "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE"), (2, 2)),
    **dict.fromkeys(("NOT", "NEGATE", "PLUS"), (1, 1)),
    **dict.fromkeys(("IN", "NOT_IN"), (1, None)),
    "RESOLVE": (2, 2),
    "TIMESTAMP": (3, 3),
}

# Functions of their arguments alone, which are all evaluated first.
PLAIN: dict[str, Callable[..., Term]] = {
    "NOT": lambda a: boolean(not effective_boolean(a)),
    "EQ": lambda a, b: boolean(equal(a, b)),
    "NE": lambda a, b: boolean(not equal(a, b)),
    "LT": lambda a, b: boolean(compare(a, b) == -1),
    "GT": lambda a, b: boolean(compare(a, b) == 1),
    "LE": lambda a, b: boolean(compare(a, b) in (-1, 0)),
    "GE": lambda a, b: boolean(compare(a, b) in (0, 1)),
    "ADD": arithmetic.sum_of,
    "SUBTRACT": arithmetic.difference_of,
    "MULTIPLY": arithmetic.product_of,
    "DIVIDE": arithmetic.quotient_of,
    "NEGATE": arithmetic.negative_of,
    "PLUS": arithmetic.plus,
    "SAMETERM": lambda a, b: boolean(a == b),
    "ISIRI": lambda a: boolean(isinstance(a, NamedNode)),
    "ISURI": lambda a: boolean(isinstance(a, NamedNode)),
    "ISBLANK": lambda a: boolean(isinstance(a, BlankNode)),
    "ISLITERAL": lambda a: boolean(isinstance(a, Literal)),
    "ISNUMERIC": strings.is_numeric,
    "IRI": lambda a: _iri(a, None),
    "URI": lambda a: _iri(a, None),
    "RESOLVE": lambda a, base: _iri(a, strings.text(base)),
    "STR": lambda a: Literal(strings.text(a)),
    "LANG": strings.lang,
    "DATATYPE": strings.datatype,
    "STRDT": strings.typed,
    "STRLANG": strings.tagged,
    "STRLEN": strings.length,
    "SUBSTR": strings.substring,
    "UCASE": strings.upper,
    "LCASE": strings.lower,
    "STRSTARTS": strings.starts,
    "STRENDS": strings.ends,
    "CONTAINS": strings.contains,
    "STRBEFORE": strings.before,
    "STRAFTER": strings.after,
    "ENCODE_FOR_URI": strings.encode_for_uri,
    "CONCAT": strings.concatenation,
    "LANGMATCHES": strings.language_matches,
    "REGEX": strings.regex,
    "REPLACE": strings.replaced,
    **{name: strings.hashed(name) for name in ("MD5", "SHA1", "SHA256", "SHA384", "SHA512")},
    "ABS": arithmetic.absolute,
    "CEIL": arithmetic.ceiling,
    "FLOOR": arithmetic.floor,
    "ROUND": arithmetic.nearest,
    "YEAR": arithmetic.year,
    "MONTH": arithmetic.month,
    "DAY": arithmetic.day,
    "HOURS": arithmetic.hours,
    "MINUTES": arithmetic.minutes,
    "SECONDS": arithmetic.seconds,
    "TIMEZONE": arithmetic.timezone,
    "TZ": arithmetic.tz,
    **CASTS,
}


def supported(name: str) -> bool:
    """Whether a Call of this name can be evaluated: an operator, a built-in in upper case, or a function's IRI."""
    return arity_of(name) is not None


def arity(name: str) -> tuple[int, int | None]:
    """The least and the most arguments that a supported function takes; None is any number."""
    found = arity_of(name)
    if found is None:
        raise KeyError(name)
    return found


def arity_of(name: str) -> tuple[int, int | None] | None:
    if name in CASTS:
        return 1, 1
    return (0, 0) if name == CQ_NOW else ARITY.get(name) or OPERATORS.get(name)


def holds(expression: Expression, solution: Mapping[str, Term], context: Context) -> bool:
    """Whether a FILTER keeps the solution: the effective boolean value, where an error counts as false."""
    try:
        return effective_boolean(evaluate(expression, solution, context))
    except ExpressionError:
        return False


def evaluate(expression: Expression, solution: Mapping[str, Term], context: Context) -> Term:
    """The value of an expression for a solution; an ExpressionError where SPARQL has an error (an unbound variable)."""
    return _evaluate(expression, solution, context, expression)


def _evaluate(expression: Expression, solution: Mapping[str, Term], context: Context, root: Expression) -> Term:
    match expression:
        case Var(name=name):
            term = solution.get(name)
            if term is None:
                raise ExpressionError(f"{expression} is not bound")
            return term
        case Constant(term=term):
            return term
        case Call(name=name, args=args) if plain := PLAIN.get(name):
            return plain(*[_evaluate(arg, solution, context, root) for arg in args])
        case Call():
            return _special(expression, solution, context, root)
        case Exists():
            if context.exists is None:
                raise TypeError("this context has no answer to EXISTS")
            return boolean(context.exists(expression, solution))
        case Aggregate():
            raise TypeError(f"{expression.name} is computed by `aggregate`, over a group")


def _special(call: Call, solution: Mapping[str, Term], context: Context, root: Expression) -> Term:
    """The calls that do not evaluate all their arguments, and those that read the context."""

    def value(expression: Expression) -> Term:
        return _evaluate(expression, solution, context, root)

    match call.name, call.args:
        case "OR", _:
            return boolean(_some(operands_of(call), lambda operand: effective_boolean(value(operand))))
        case "AND", _:
            return boolean(not _some(operands_of(call), lambda operand: not effective_boolean(value(operand))))
        case ("IN" | "NOT_IN") as name, (first, *listed):
            tested = value(first)
            return boolean(_some(listed, lambda operand: equal(tested, value(operand))) is (name == "IN"))
        case "IF", (condition, then, otherwise):
            return value(then if effective_boolean(value(condition)) else otherwise)
        case "COALESCE", operands:
            return _first(operands, value)
        case "BOUND", (Var(name=name),):
            return boolean(name in solution)
        case "PART", (divided, Constant(term=Literal(value=count))):
            return Literal(part_of(value(divided), int(count)))
        case name, () if name in ("NOW", CQ_NOW):
            return date_time_literal(context.now)
        case "TIMESTAMP", (subject, predicate, object_):
            return _timestamp(value(subject), value(predicate), value(object_), context)
        case ("GETSTARTTIME" | "GETENDTIME" | "GETDURATION") as name, ():
            return _part_of_interval(name, context)
        case ("RAND" | "UUID" | "STRUUID" | "BNODE") as name, operands:
            return draw(name, [value(operand) for operand in operands], solution, context, _place(call, root))
        case _:
            raise TypeError(f"{call.name} with {len(call.args)} arguments is no function")


def _some(operands: Iterable[Expression], test: Callable[[Expression], bool]) -> bool:
    """Whether the test holds for an operand. One that holds outweighs an error, an error outweighs the others."""
    error: ExpressionError | None = None
    for operand in operands:
        try:
            if test(operand):
                return True
        except ExpressionError as raised:
            error = raised
    if error is not None:
        raise error
    return False


def _first(operands: Iterable[Expression], value: Callable[[Expression], Term]) -> Term:
    """COALESCE: the first value that is no error."""
    for operand in operands:
        try:
            return value(operand)
        except ExpressionError:
            continue
    raise ExpressionError("COALESCE has no value to give")


def _iri(term: Term, base: str | None) -> Term:
    if isinstance(term, NamedNode):
        return term
    reference = strings.simple_text(term)
    absolute = resolve(base, reference)
    if absolute is None:
        raise ExpressionError(f"{reference!r} is relative, and there is no base")
    try:
        return NamedNode(absolute)
    except ValueError as error:
        raise ExpressionError(f"{absolute!r} is not an IRI") from error


def _timestamp(subject: Term, predicate: Term, object_: Term, context: Context) -> Term:
    time = context.timestamp(subject, predicate, object_) if context.timestamp else None
    if time is None:
        raise ExpressionError("no such triple is in a stream")
    return date_time_literal(time)


def _part_of_interval(name: str, context: Context) -> Term:
    if context.interval is None:
        raise ExpressionError("the solution used no element of a stream")
    start, end = context.interval
    match name:
        case "GETSTARTTIME":
            return date_time_literal(start)
        case "GETENDTIME":
            return date_time_literal(end)
        case _:
            return literal_of(Duration(0, EXACT.scaleb(Decimal(end - start), -9), Length.DAY_TIME))


def _place(call: Call, root: Expression) -> str:
    """Where a call stands: in the query's text, or where that is not known, in its expression."""
    if call.span is not None:
        return f"{call.span.start}-{call.span.end}"
    return f"#{next(position for position, node in enumerate(walk(root)) if node is call)}"
