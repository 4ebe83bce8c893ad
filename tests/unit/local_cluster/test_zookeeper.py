"""ZooKeeper: what is needed for it, and how it is configured."""

from pathlib import Path

import pytest

from qbus.local_cluster import LocalClusterError, zookeeper
from tests.support.ports import free_port


def fake_java(tmp_path: Path, text: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "jars", lambda: [Path("zookeeper-3.9.3.jar")])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalClusterError, match="no 'java' on the PATH"):
        zookeeper.command(tmp_path)
    fake_java(tmp_path, 'java version "1.7.0_80"')
    with pytest.raises(LocalClusterError, match="is Java 7: ZooKeeper needs 8"):
        zookeeper.command(tmp_path)
    fake_java(tmp_path, "no runtime present")
    with pytest.raises(LocalClusterError, match="does not run: no runtime present"):
        zookeeper.command(tmp_path)
    fake_java(tmp_path, 'openjdk version "17.0.9"')
    assert zookeeper.command(tmp_path)[0] == str(tmp_path / "java")


def test_without_pyspark_it_says_where_zookeeper_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "pyspark_home", lambda: None)
    with pytest.raises(LocalClusterError, match=r"pip install 'qbus\[spark\]'"):
        zookeeper.command(tmp_path)


def test_a_server_of_an_ensemble_knows_all_of_it(tmp_path: Path) -> None:
    ensemble = {n: f"127.0.0.1:{n}0:{n}1" for n in (1, 2, 3)}
    config = zookeeper.configure(tmp_path / "two", 2, "127.0.0.1", 2182, ensemble)
    lines = config.read_text().splitlines()
    assert "clientPort=2182" in lines
    assert [line for line in lines if line.startswith("server.")] == [
        "server.1=127.0.0.1:10:11",
        "server.2=127.0.0.1:20:21",
        "server.3=127.0.0.1:30:31",
    ]
    assert (config.parent / "myid").read_text() == "2\n"


def test_a_server_that_is_not_there_has_no_mode() -> None:
    assert zookeeper.mode("127.0.0.1", free_port()) is None
