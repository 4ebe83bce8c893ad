from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log.properties import check_owner
from qbus.errors import ConfigError


def test_a_new_directory_becomes_the_brokers(tmp_path: Path) -> None:
    made = check_owner(OsFiles(), str(tmp_path), "cluster-a", 3)
    assert (made.cluster_id, made.node_id, len(made.directory_id)) == ("cluster-a", 3, 22)
    text = (tmp_path / "meta.properties").read_text().splitlines()
    assert text[0] == "cluster.id=cluster-a"
    assert text[2:] == ["node.id=3", "version=1"]
    assert check_owner(OsFiles(), str(tmp_path), "cluster-a", 3) == made


@pytest.mark.parametrize(("cluster", "node"), [("cluster-b", 3), ("cluster-a", 4)])
def test_another_brokers_directory_is_refused(tmp_path: Path, cluster: str, node: int) -> None:
    check_owner(OsFiles(), str(tmp_path), "cluster-a", 3)
    with pytest.raises(ConfigError, match="belongs to"):
        check_owner(OsFiles(), str(tmp_path), cluster, node)


def test_comments_and_further_keys_are_passed_over(tmp_path: Path) -> None:
    text = "#\n#Mon Jan 01\ncluster.id=c=1\nnode.id=3\nversion=1\nx=y\n\n"
    (tmp_path / "meta.properties").write_text(text)
    assert check_owner(OsFiles(), str(tmp_path), "c=1", 3).directory_id == ""


@pytest.mark.parametrize(
    "text", ["", "version=2\n", "version=1\nnode.id=3\n", "version=1\ncluster.id=c\nnode.id=x\n"]
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ConfigError, match=r"version|missing"):
        check_owner(OsFiles(), str(tmp_path), "c", 3)
