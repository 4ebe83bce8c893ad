"""Cuts of the test network are silent, have a direction, and end; nothing is left behind."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support import namespaces
from tests.support.namespaces import Network
from tests.support.tools import skip_because_of

pytestmark = pytest.mark.integration


@pytest.fixture
def network() -> Iterator[Network]:
    skip_because_of(namespaces.missing())
    with Network(["a", "b", "c"]) as network:
        yield network


def reaches(network: Network, sender: str, address: str) -> bool:
    """Whether a datagram from one host arrives at a listener at ``address``."""
    receiver = next(name for name, host in network.hosts.items() if host == address)
    listen = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.bind(('{address}', 7000)); s.settimeout(1.0); print('ready', flush=True); s.recv(9)"
    )
    send = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.sendto(b'word', ('{address}', 7000))"
    )
    with subprocess.Popen(
        [*network.prefix(receiver), sys.executable, "-c", listen],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as listening:
        assert listening.stdout is not None
        listening.stdout.readline()
        subprocess.run([*network.prefix(sender), sys.executable, "-c", send], check=True)
        return listening.wait(30) == 0


def test_a_cut_is_one_way_or_both_and_ends(network: Network) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    assert reaches(network, "a", b)
    network.cut("a", "b", both=False)
    assert not reaches(network, "a", b)
    assert reaches(network, "b", a)
    network.cut("a", "b")
    assert not reaches(network, "b", a)
    assert reaches(network, "c", a)
    network.heal()
    assert reaches(network, "a", b)
    assert reaches(network, "b", a)


def test_an_isolated_host_reaches_no_other(network: Network) -> None:
    network.isolate(["c"])
    assert reaches(network, "a", network.hosts["b"])
    assert not reaches(network, "c", network.hosts["a"])
    assert not reaches(network, "b", network.hosts["c"])


def test_namespaces_are_removed() -> None:
    skip_because_of(namespaces.missing())

    def listed() -> str:
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True)
        return links.stdout + spaces.stdout

    network = Network(["a"])
    with suppress(RuntimeError), network:
        assert network.prefix("a")[-1] in listed()
        raise RuntimeError("a test that fails")
    assert network.prefix("a")[-1] not in listed()
