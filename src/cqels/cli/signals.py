"""How a command that runs for long is ended from outside: Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event, current_thread, main_thread
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While it is entered, the first signal asks for an end, and the second is one."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        """`at_once` is what has to be done even then, and takes no time."""
        self._at_once = at_once
        self._asked = Event()
        self._before: dict[int, Any] = {}
        self.code = 0
        """What a process that was ended by the signal exits with."""

    def __enter__(self) -> Stopping:
        if current_thread() is main_thread():
            self._before = {each: signal.getsignal(each) for each in _SIGNALS}
            self.listen()
        return self

    def __exit__(self, *fault: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def listen(self) -> None:
        """Again, where something else listens instead."""
        for each in self._before:
            signal.signal(each, self._received)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def _received(self, number: int, frame: object) -> None:
        if self.asked:
            self._at_once()
            os._exit(128 + number)
        self.code = 128 + number
        self._asked.set()
        os.write(2, b"\nstopping; once more to end at once\n")
