"""Who may use an engine: one thread at a time, nobody once it is closed, and after a fork the child its own copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

from cqels.model.errors import CqelsError

P = ParamSpec("P")
R = TypeVar("R")


class Access:
    """The lock of one engine and of its queries, which a thread may take again while it has it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.refusal: tuple[str, str] | None = None
        """Why the engine cannot be used, and a hint."""
        self.unfinished: Callable[[], None] | None = None
        """Does the rest of what an exception has interrupted, if there is one."""
        self.in_file = False
        """The engine's memory is a file, which a fork does not copy."""
        _ALL[id(self)] = self

    def close(self) -> bool:
        """Refuse all further use, unless that is refused already: is there something to close?"""
        if self._is_busy():
            message, hint = _BUSY
            raise CqelsError(message, hint=hint)
        to_close = self.refusal is None
        self.refusal = self.refusal or ("the engine is closed", "what its queries have sent can still be taken")
        return to_close

    def check(self) -> None:
        """Raise an error if the engine cannot be used."""
        if self.refusal is not None and (self.refusal is not _BUSY or self._is_busy()):
            message, hint = self.refusal
            raise CqelsError(message, hint=hint)

    def _is_busy(self) -> bool:
        """Whether this thread, which has the lock, is in the middle of something.

        If it has taken the lock only once, it is not: a signal's handler may have raised just before `__exit__`.
        """
        if self.refusal is not _BUSY:
            return False
        self.lock.release()
        try:
            self.lock.release()
        except RuntimeError:  # it was taken once
            self.lock.acquire()
            self.refusal = None
            return False
        self.lock.acquire()
        self.lock.acquire()
        return True

    def __enter__(self) -> None:
        """Be in the middle of something: whoever this thread calls meanwhile, a signal handler say, is refused."""
        self.refusal = _BUSY

    def __exit__(self, *error: object) -> None:
        self.refusal = None


_BUSY = (
    "the engine is in the middle of a change",
    "a signal handler, or a function that a query calls, cannot use the engine that it interrupts",
)


class HasAccess(Protocol):
    @property
    def _access(self) -> Access: ...


S = TypeVar("S", bound=HasAccess)


def synchronized(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let one thread at a time be in the methods of an engine and its queries."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._access.lock:
            return method(self, *args, **kwargs)

    return call


def completed(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """`synchronized`, after the rest of what was interrupted has been done."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        access = self._access
        with access.lock:
            if access.unfinished is not None and (access.refusal is None or not access._is_busy()):
                access.unfinished()
            return method(self, *args, **kwargs)

    return call


def while_open(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """`completed`, for a method that needs an engine that is not closed."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        access = self._access
        with access.lock:
            access.check()
            if access.unfinished is not None:
                access.unfinished()
            return method(self, *args, **kwargs)

    return call


def while_open_at_once(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """`while_open`, for a method that itself sees to the rest of what was interrupted."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._access.lock:
            self._access.check()
            return method(self, *args, **kwargs)

    return call


# ---------------------------------------------------------------- forks

_ALL: WeakValueDictionary[int, Access] = WeakValueDictionary()
_WAITED_FOR: list[Access] = []
"""Those whose locks the thread that forks has taken: no engine is copied in the middle of something."""


def _before_fork() -> None:
    for each in [reference() for reference in _ALL.valuerefs()]:
        if each is not None:
            each.lock.acquire()
            _WAITED_FOR.append(each)


def _after_fork() -> None:
    while _WAITED_FOR:
        _WAITED_FOR.pop().lock.release()


def _after_fork_in_child() -> None:
    for each in _WAITED_FOR:
        if each.in_file and each.refusal is None:
            each.refusal = (
                "the engine's memory is a file, and the process that this one was forked from goes on in it",
                "make an engine in the new process",
            )
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
