"""Addresses in the form of Kafka's zookeeper.connect; anything else is refused."""

import pytest

from qbus.metadata.zookeeper import ZooKeeperAddress

READ = [
    ("zk1", (("zk1", 2181),), "/"),
    ("zk1:2182", (("zk1", 2182),), "/"),
    ("zk://zk1:2182", (("zk1", 2182),), "/"),
    ("a:1,b:2,c", (("a", 1), ("b", 2), ("c", 2181)), "/"),
    (" a:1 , b:2/bus ", (("a", 1), ("b", 2)), "/bus"),
    ("a/bus/one", (("a", 2181),), "/bus/one"),
    ("a/", (("a", 2181),), "/"),
    ("a/bus/", (("a", 2181),), "/bus"),
    ("[::1]:2182,[::2]/x", (("::1", 2182), ("::2", 2181)), "/x"),
]


@pytest.mark.parametrize(("text", "servers", "chroot"), READ)
def test_reads(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    assert ZooKeeperAddress.parse(text) == (servers, chroot)


@pytest.mark.parametrize("text", [text for text, _, _ in READ])
def test_reads_what_it_wrote(text: str) -> None:
    address = ZooKeeperAddress.parse(text)
    assert ZooKeeperAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/bus",
        "zk://",
        "a,",
        "a,,b",
        "a:0",
        "a:65536",
        "a:x",
        "a:",
        "a:-1",
        "a:1_0",
        "::1:2181",
        "[::1",
        "a b:1",
        "user:secret@a:1",
        "a//bus",
        "a/bus//one",
        "a/..",
        "a/bus\x00",
        "http://a:1",
        ".",
        "a..b:1",
        "./data",
    ],
)
def test_refuses_with_what_it_expects(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port,\.\.\./chroot"):
        ZooKeeperAddress.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://a:1", "without http://"),
        ("zk://https://a:1/bus", "without https://"),
        ("a:1/bus,b:2/bus", "with the chroot once, after the last server"),
        ("a/bus,b:2", "with the chroot once, after the last server"),
        ("/var/zookeeper", "with a host name or an address"),
    ],
)
def test_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ZooKeeperAddress.parse(text)


def test_a_chroot_may_have_a_comma() -> None:
    assert ZooKeeperAddress.parse("a:1/bus,one").chroot == "/bus,one"
