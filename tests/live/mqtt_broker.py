"""A broker for MQTT on this machine: mosquitto if it is installed, else the one of amqtt; it can be killed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from getpass import getuser
from pathlib import Path

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
VERSION = "3.1.1" if MOSQUITTO is None else "5"
"""The newest that it knows."""
_AMQTT = """
import asyncio, sys
from amqtt.broker import Broker
async def main():
    broker = Broker({"listeners": {"default": {"type": "tcp", "bind": sys.argv[1]}}})
    await broker.start()
    await asyncio.Event().wait()
asyncio.run(main())
"""


class MqttBroker:
    """A broker on a free port of the loopback; what it has is gone with it, unless mosquitto's settings say otherwise.

    Without a `program`, it is that of amqtt, which knows no settings.
    """

    def __init__(
        self, folder: Path, settings: str = "allow_anonymous true\n", *, program: str | None = MOSQUITTO
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        if program is not None:
            config = folder / "mosquitto.conf"
            config.write_text(f"listener {self.port} 127.0.0.1\nuser {getuser()}\n{settings}")
            self._command = [program, "-c", str(config)]
        else:
            self._command = [sys.executable, "-c", _AMQTT, f"127.0.0.1:{self.port}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        self.kill()
        raise TimeoutError("the broker does not answer")

    def stop(self) -> None:
        """End it as it would end by itself: it writes down what it keeps."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> MqttBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
