"""What the README shows is what happens: its commands are run and their output compared."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def commands() -> list[tuple[str, str]]:
    """The `cqels` commands in the console blocks, each with the output shown below it."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            if "cqels" in line:
                found.append((line, output))
    return found


@pytest.mark.parametrize(("line", "output"), commands(), ids=lambda text: text.split("\n")[0][:40])
def test_command(line: str, output: str) -> None:
    words = shlex.split(line)
    assert words[0] == ".venv/bin/cqels"
    script = "from cqels.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == output


def test_every_page_is_there() -> None:
    for page in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / page).exists(), page
