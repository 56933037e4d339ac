"""Signals while an engine works: their handlers wait until its queries are between two steps.

A handler may raise an exception (Ctrl-C raises KeyboardInterrupt) wherever the interpreter is.  In the middle of a step
that would leave some queries with a change and others without it.  So while the main thread works for an engine,
the handlers that are installed are called between steps, or inside what only computes a value and can do so again.
At all other times they are called at once, as ever.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import get_ident, main_thread
from types import FrameType, TracebackType
from typing import Any, TypeVar

from cqels.model.deadlines import TICK, check, watched, work_here

T = TypeVar("T")
_Handler = Callable[[int, FrameType | None], Any]

_NAMES = "SIGINT SIGTERM SIGALRM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGVTALRM SIGPROF SIGCHLD SIGWINCH"
_SIGNALS = [int(getattr(signal, name)) for name in _NAMES.split() if hasattr(signal, name)]
_handler_of: Callable[[int], Any] = import_module("_signal").getsignal
"""`signal.getsignal` without a name for what is no function, which takes longer than all the rest of a small push."""


class _Waiting:
    """A handler that is called when it may be."""

    def __init__(self, handler: _Handler) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if _STATE.working and not _STATE.exposed:
            _STATE.came.append((self.handler, number, frame))
            return None
        return self.handler(number, frame)


class _State:
    """What the main thread is at."""

    working = False
    exposed = False
    """It computes a value: a handler may raise an exception."""

    def __init__(self) -> None:
        self.came: list[tuple[_Handler, int, FrameType | None]] = []
        """Handlers that wait."""
        self.installed: list[Any] = []
        """The handlers that were there when it was looked last."""


_STATE = _State()


class Working:
    """`with Working(): …` is a stretch of work, which handlers of signals wait for; its end calls them."""

    __slots__ = ("_outermost",)

    def __enter__(self) -> None:
        self._outermost = get_ident() == main_thread().ident and not _STATE.working
        if self._outermost:
            if [*map(_handler_of, _SIGNALS)] != _STATE.installed:
                _wrap_handlers()
            _STATE.working = True  # the last thing: an exception before this leaves all as it was

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outermost:
            _STATE.working = _STATE.exposed = False
            between_steps()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Do what no exception of a handler may interrupt, not even where a value is computed: handlers wait."""
    if get_ident() != main_thread().ident:
        yield
        return
    with Working():
        before, _STATE.exposed = _STATE.exposed, False
        try:
            yield
        finally:
            _STATE.exposed = before


def between_steps() -> None:
    """Call the handlers that wait. What they raise comes from here."""
    if _STATE.came and get_ident() == main_thread().ident:
        while _STATE.came:
            handler, number, frame = _STATE.came.pop(0)
            handler(number, frame)


def exposed(compute: Callable[..., T], *arguments: Any) -> T:
    """Compute a value, which handlers of signals and budgets of time may interrupt by an exception."""
    if get_ident() != main_thread().ident:
        work = work_here()
        return compute(*arguments) if work is None else work.compute(compute, *arguments)
    if not _STATE.working:
        return compute(*arguments)
    _STATE.exposed = True
    try:
        between_steps()
        return compute(*arguments)
    finally:
        _STATE.exposed = False


@contextmanager
def ticking(is_late: Callable[[int | None], bool], error: type[BaseException]) -> Iterator[None]:
    """Raise an exception in what is computed, when it takes too long by this thread's processor time.

    In the main thread that needs a signal, SIGVTALRM; where someone else uses it, only `check` looks at the time.
    """
    with watched(is_late, error), _signalling():
        yield


@contextmanager
def _signalling() -> Iterator[None]:
    """Have the main thread look at the time every tenth of a second of the processor while it computes a value."""
    number, timer = getattr(signal, "SIGVTALRM", 0), getattr(signal, "ITIMER_VIRTUAL", 0)
    mine = _STATE.working and get_ident() == main_thread().ident and number
    if not mine or _handler_of(number) != signal.SIG_DFL or signal.getitimer(timer)[0]:
        yield
        return

    def called(number: int, frame: FrameType | None) -> None:
        if _STATE.exposed:
            check()

    _install(number, called)
    signal.setitimer(timer, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, signal.SIG_DFL)


def uninstall() -> None:
    """Let the handlers be installed again that others installed."""
    if get_ident() == main_thread().ident:
        for number in _SIGNALS:
            handler = _handler_of(number)
            if type(handler) is _Waiting:
                _install(number, handler.handler)


def _wrap_handlers() -> None:
    """Let the handlers wait that others have installed."""
    for number in _SIGNALS:
        handler = _handler_of(number)
        if callable(handler) and type(handler) is not _Waiting:
            _install(number, _Waiting(handler))
    _STATE.installed = [*map(_handler_of, _SIGNALS)]


def _install(number: int, handler: _Handler) -> None:
    try:
        signal.signal(number, handler)
    except ValueError:  # this is not the main interpreter, whose handlers these are
        return
