"""What SERVICE and LOAD may reach: the hosts and folders that the user allows, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cqels.model.errors import CqelsError

Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")


class NotAllowed(CqelsError):
    """Something that a query or an update may not reach. The hint has the option that allows it."""


@dataclass(frozen=True, slots=True)
class _Host:
    """A host that is allowed: a name, an address, a network, or any."""

    name: str
    port: int | None = None
    network: IPv4Network | IPv6Network | None = None

    @staticmethod
    def of(text: str) -> _Host:
        """`ex.org`, `ex.org:3030`, `10.1.2.3`, `10.0.0.0/8`, `[::1]:3030`, the URL of an endpoint, or `*` for any."""
        plain = text.strip()
        try:
            return _Host(plain, network=ip_network(plain))
        except ValueError:
            pass
        try:
            parts = urlsplit(plain if "://" in plain else f"//{plain}")
            name, port = parts.hostname, parts.port
        except ValueError:
            name, port = None, None
        if not name or (parts.path not in ("", "/") and "://" not in plain):
            raise CqelsError(f"'{text}' is not a host that could be allowed", hint="write ex.org, ex.org:3030 or *")
        try:
            return _Host(name, port, ip_network(name))
        except ValueError:
            return _Host(name.rstrip("."), port)

    def admits(self, host: str, port: int, address: Address) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            return address in self.network
        return self.name in ("*", host)


def _listed(option: str, values: Iterable[Any], kind: Any) -> list[Any]:
    """One text or several of them, and nothing else."""
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, bytes) else [values]
    for each in found:
        if not isinstance(each, kind):
            raise CqelsError(f"{option} of type {type(each).__name__} is not taken", hint="give a list of texts")
    return found


@dataclass(frozen=True, slots=True)
class Permissions:
    """Which hosts SERVICE and LOAD may ask, and in which folders LOAD may read.

    Without `hosts` (None) they may ask whatever is on the public Internet, and with `loopback` this machine too; with
    them, those and no others.
    """

    hosts: tuple[_Host, ...] | None = None
    folders: tuple[Path, ...] = ()
    loopback: bool = False

    @staticmethod
    def of(
        allow_service: str | Iterable[str] | None = None,
        allow_load: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        *,
        loopback: bool = False,
    ) -> Permissions:
        """What is written on the command line, or given in Python: one or several of each."""
        hosts = _several("allow_service", allow_service, str)
        folders = _several("allow_load", allow_load, str | os.PathLike)
        return Permissions(
            None if hosts is None else tuple(map(_Host.of, _listed("allow_service", hosts, str))),
            tuple(Path(each).resolve() for each in _listed("allow_load", folders or (), str | os.PathLike)),
            loopback,
        )

    def check_host(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """Refuse a host unless all its addresses may be asked."""
        host = host.lower().rstrip(".")
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if self.hosts is not None:
                if not any(each.admits(host, port, address) for each in self.hosts):
                    raise _refused(f"the host {host} is not one of those that are allowed", host)
            elif (kind := _kind(address)) is not None and not (self.loopback and kind == "loopback"):
                raise _refused(f"the host {host} is not allowed: {address} is a {kind} address", host)

    def check_file(self, path: Path) -> Path:
        """The file that is meant, links resolved; refused unless it is in an allowed folder."""
        try:
            real = path.resolve()
            if not any(real.is_relative_to(folder) for folder in self.folders):
                where = real.parent
                raise NotAllowed(
                    f"the file {path} is in no folder that LOAD may read",
                    hint=f"allow the folder: --allow-load {where}, or Engine(allow_load=['{where}'])",
                )
            if real.exists() and not real.is_file():
                raise NotAllowed(f"{path} is not a regular file", hint="LOAD reads regular files")
        except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, a NUL in its name
            raise CqelsError(f"the file {str(path)[:200]!r} cannot be read: {str(error).lower()[:200]}") from None
        return real


def _several(word: str, given: Any, kind: Any) -> list[Any] | None:
    """The one or several that an option was given, if it was."""
    if given is None or isinstance(given, kind):
        return None if given is None else [given]
    several = list(given) if isinstance(given, Iterable) else [given]
    for each in several:
        if not isinstance(each, kind):
            raise CqelsError(f"{word}= does not take a value of type {type(each).__name__}", hint="give texts")
    return several


def _refused(message: str, host: str) -> NotAllowed:
    return NotAllowed(message, hint=f"allow the host: --allow-service {host}, or Engine(allow_service=['{host}'])")


def _kind(address: Address) -> str | None:
    """What kind of address this is that is not one of the public Internet; None for one that is."""
    address = _inner(address)
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_private:
        return "private"
    if address.is_multicast or address.is_reserved or not address.is_global:
        return "special"
    return None


def _inner(address: Address) -> Address:
    """The IPv4 address that one of IPv6 leads to, if it does."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address
