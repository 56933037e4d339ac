"""Resolution of relative IRIs against a base (RFC 3986, section 5)."""

from __future__ import annotations

import re

PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def resolve(base: str | None, reference: str) -> str | None:
    """The absolute IRI that `reference` means, or None when it is relative and there is no base.

    >>> resolve("http://ex.org/a/b", "../c?q#f")
    'http://ex.org/c?q#f'
    """
    scheme, authority, path, query, fragment = _split(reference)
    if scheme is not None:
        return reference
    if base is None:
        return None
    scheme, base_authority, base_path, base_query, _ = _split(base)
    if scheme is None:
        return None
    if authority is not None:
        path = _without_dots(path)
    else:
        authority = base_authority
        if not path:
            path = base_path
            query = base_query if query is None else query
        elif path.startswith("/"):
            path = _without_dots(path)
        else:
            root = "/" if base_authority is not None and not base_path else base_path[: base_path.rfind("/") + 1]
            path = _without_dots(root + path)
    return (
        f"{scheme}:"
        + (f"//{authority}" if authority is not None else "")
        + path
        + (f"?{query}" if query is not None else "")
        + (f"#{fragment}" if fragment is not None else "")
    )


def _split(iri: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = PARTS.fullmatch(iri)
    assert found is not None  # every text matches: each part may be absent
    scheme, authority, path, query, fragment = found.groups()
    return scheme, authority, path, query, fragment


def _without_dots(path: str) -> str:
    kept: list[str] = []
    segments = path.split("/")
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "..":
            if len(kept) > 1 or (kept and kept[0]):
                kept.pop()
            if last:
                kept.append("")
        elif segment == ".":
            if last:
                kept.append("")
        else:
            kept.append(segment)
    return "/".join(kept)
