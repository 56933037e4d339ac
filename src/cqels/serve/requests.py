"""What handlers take from requests: bodies up to a size, parameters, what a client accepts."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import ClientDisconnect, Request

from cqels.model.time import parse_duration
from cqels.serve.access import GRANTED, Right
from cqels.serve.problems import Problem

_RANGES = 50
"""Media types that are looked at in what a client accepts."""


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request, of at most so many bytes; that it comes in time is the guard's business."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise too_large(most)
    first, more = b"", bytearray()
    try:
        async for part in request.stream():
            if len(first) + len(more) + len(part) > most:
                raise too_large(most)
            if first:
                more += part
            else:
                first = part
    except ClientDisconnect:
        raise Problem(400, "the connection has ended before the body") from None
    return first + more if more else first


def too_large(most: int) -> Problem:
    hint = "send it in parts; the service's option --max-body says how large they may be"
    return Problem(413, f"the body has more than {most:,} bytes", hint=hint, headers={"Connection": "close"})


def too_slow(seconds: float, rate: float, *, drips: bool) -> Problem:
    slow = f"the body has come with less than {rate:,.0f} bytes in a second"
    detail = slow if drips else f"nothing more of the body has come for {seconds:g} s"
    return Problem(408, detail, headers={"Connection": "close"})


def require(request: Request, right: Right) -> None:
    """Refuse what needs a right that who asks does not have, where that is known only from the body."""
    if right not in request.scope[GRANTED]:
        raise forbidden(right)


def forbidden(right: Right) -> Problem:
    told = f'Bearer realm="cqels", error="insufficient_scope", scope="{right}"'
    return Problem(403, f"the token does not have the right {right}", headers={"WWW-Authenticate": told})


async def text_of(request: Request, most: int) -> str:
    """The body as a text."""
    try:
        return (await body_of(request, most)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: byte {error.start:,}") from None


def parameter(request: Request, name: str) -> str | None:
    """The value of a parameter of the query string, which may be given once."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise Problem(400, f"the parameter {name} is given {len(values)} times")
    return values[0] if values else None


def number_of(request: Request, name: str, least: int = 0) -> int | None:
    """A parameter that is a number."""
    text = parameter(request, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        raise Problem(400, f"the parameter {name} is not a number of at least {least}: '{text[:40]}'")
    return int(text)


def seconds_of(request: Request, name: str, default: float, most: float) -> float:
    """A parameter that is a time, as 30s."""
    text = parameter(request, name)
    if text is None:
        return default
    try:
        return min(parse_duration(text) / 1e9, most)
    except ValueError:
        raise Problem(400, f"the parameter {name} is not a time: '{text[:40]}'", hint="as in 30s") from None


def refuse_others(request: Request, known: Sequence[str]) -> None:
    """Refuse parameters that there are not: one that is misspelt would have no effect, in silence."""
    for name in request.query_params:
        if name not in known:
            there = ", ".join(known) or "none"
            raise Problem(400, f"there is no parameter '{name[:40]}'", hint=f"there are: {there}")


def accepted(request: Request, offered: Sequence[str]) -> str:
    """The media type that a client likes best of those that are offered; the first if it does not care."""
    header = ",".join(request.headers.getlist("accept")) or "*/*"
    best, chosen = 0.0, None
    ranges = [_range(each) for each in header.split(",", _RANGES)[:_RANGES] if each.strip()]
    for place, media in enumerate(offered):
        quality = max(((_precision(wanted, media), q) for wanted, q in ranges if _matches(wanted, media)), default=None)
        value = 0.0 if quality is None else quality[1] - place * 1e-9
        if value > best:
            best, chosen = value, media
    if chosen is None:
        raise Problem(
            406, f"none of what is accepted can be sent: {header[:200]}", hint=f"there are {', '.join(offered)}"
        )
    return chosen


def _range(text: str) -> tuple[str, float]:
    media, *parameters = (each.strip() for each in text.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return media.lower(), float(quality)
    except ValueError:
        return media.lower(), 0.0


def _matches(wanted: str, media: str) -> bool:
    return wanted in ("*/*", media) or (wanted.endswith("/*") and media.startswith(wanted[:-1]))


def _precision(wanted: str, media: str) -> int:
    return 2 if wanted == media else 1 if wanted != "*/*" else 0
