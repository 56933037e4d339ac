"""What the page on the client shows is what happens with a service, and what its examples leave to others."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqels.serve.server import Address

from .served import served

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "client.md"
BLOCK = re.compile(r"^```py\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("state")) as server:
        yield server.url


@pytest.mark.parametrize(("code", "shown"), BLOCK.findall(PAGE.read_text()))
def test_examples(code: str, shown: str, url: str) -> None:
    assert _printed(code.replace("http://127.0.0.1:7070", url)) == shown


def test_without_httpx_it_says_what_to_install() -> None:
    program = (
        "import sys, cqels; sys.modules['httpx'] = None\n"
        "for connect in (cqels.connect, cqels.connect_async):\n"
        "    try: connect('http://127.0.0.1:7070')\n"
        "    except cqels.CqelsError as error: print(error)\n"
    )
    assert _printed(program) == "httpx is not installed\n   = hint: pip install 'cqels[http]'\n" * 2


def test_nothing_heavy_is_loaded() -> None:
    heavy = ("httpx", "llvmlite", "lark", "numpy", "pyarrow", "pyspark", "starlette", "cqels.engine", "cqels.kernels")
    found = f"print([name for name in {heavy} if name in sys.modules])"
    program = f"import sys, cqels\n{found}\ncqels.connect\n{found}\ncqels.connect('http://127.0.0.1:1')\n{found}"
    assert _printed(program).splitlines() == ["[]", "[]", "['httpx']"]


def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words.split(), *name], check=True, capture_output=True)
    with served(tmp_path / "state", address=Address(port=0, certificate=certificate, key=key)) as server:
        program = f"import cqels; print(cqels.connect({server.url!r}).status()['service'])"
        assert server.url.startswith("https://")
        assert _printed(program, SSL_CERT_FILE=str(certificate)) == "cqels\n"
        program = f"import cqels\ntry: cqels.connect({server.url!r}).status()\nexcept cqels.CqelsError as e: print(e)"
        told = f"the certificate of {server.url} is not trusted: self-signed certificate\n"
        assert _printed(program) == told + "   = hint: SSL_CERT_FILE names the file of its authority\n"


def _printed(program: str, **variables: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
