"""Names of streams and queries: short in paths and results, IRIs below the service's base everywhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyoxigraph import NamedNode

from cqels.model.errors import CqelsError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Names:
    """What is named without a scheme is that name below `base`, which ends with a slash or a hash."""

    base: str

    @classmethod
    def below(cls, base: str) -> Names:
        if not _SCHEME.match(base) or not base.endswith(("/", "#", ":")):
            raise CqelsError(f"'{base}' is not a base for names", hint="an IRI that ends with / or #")
        _checked(base)
        return cls(base)

    def full(self, name: str) -> str:
        """The IRI of a name."""
        if not name:
            raise CqelsError("a stream or query has a name", hint="as in /streams/obs")
        return _checked(name if _SCHEME.match(name) else self.base + name)

    def short(self, iri: str) -> str:
        """What an IRI is called in paths and results."""
        rest = iri.removeprefix(self.base)
        return rest if rest and not _SCHEME.match(rest) else iri


def _checked(iri: str) -> str:
    try:
        return NamedNode(iri).value
    except ValueError:
        raise CqelsError(f"'{iri}' is not a name", hint="letters, digits, - and _, or an IRI") from None
