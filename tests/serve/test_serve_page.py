"""The session of docs/how-to/serve.md: its commands are run in order, and their answers compared.

`REWRITE=1` fills in the answers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cqels.live.live_run import LiveSettings
from cqels.serve.backend import Pipeline
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
SESSION = re.compile(r"^```sh\n(?P<commands>(?:(?!```).*\n)*)```\n\n```text\n(?:(?!```).*\n)*```$", re.MULTILINE)
ADDRESS = "localhost:7070"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_page(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert page.count("```sh\n") == 1 + len(SESSION.findall(page)), "only the start has no answer"
    pipeline = Pipeline(store=Store(), settings=LiveSettings(lasting=True))
    with Server(Service(pipeline, tmp_path / "state"), Address(port=0)) as server:

        def answered(found: re.Match[str]) -> str:
            commands = found["commands"].replace(ADDRESS, f"127.0.0.1:{server.port}")
            shell = ["bash", "-e", "-c", commands]
            done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, timeout=30)
            assert done.returncode == 0, commands + done.stderr
            answers = done.stdout.strip("\n")
            return f"```sh\n{found['commands']}```\n\n```text\n{answers}\n```"

        now = SESSION.sub(answered, page)
    if "REWRITE" in os.environ:
        PAGE.write_text(now)
    assert now == page
