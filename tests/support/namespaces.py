"""Network namespaces for servers, which can be cut between any two, in one direction or both.

Each namespace has one address and is connected by a veth pair to a bridge, on which the test is,
too. A cut is silent, as when a cable is pulled: the sender's neighbour table gets a hardware
address that does not exist, so its packets are lost while those of the other direction arrive. This
needs only iproute2 and root.
"""

import os
import random
import shutil
import subprocess
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

_NOBODY = "02:00:00:00:00:01"


class NetworkError(Exception):
    """The system refused a command; the message is its error output."""


def missing() -> str | None:
    """The reason why namespaces cannot be created here, if there is one."""
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network(["probe"]):
            return None
    except NetworkError as error:
        return f"network namespaces cannot be made here: {error}"


class Network:
    """One namespace for each name, from entry to exit."""

    def __init__(self, names: Iterable[str]) -> None:
        # Names of interfaces are short, and a killed run may have left some.
        self._id = f"q{os.getpid():x}{random.randrange(256):02x}"
        subnet = f"10.{random.randrange(128, 255)}.{random.randrange(256)}"
        self._bridge = f"{self._id}b"
        self.gateway = f"{subnet}.254"
        """The address of the test itself."""
        self.hosts = {name: f"{subnet}.{number}" for number, name in enumerate(names, 1)}
        """The address of each host."""
        self._cut: set[tuple[str, str]] = set()
        self._remove = weakref.finalize(self, _remove, self._bridge, self._namespaces())

    def prefix(self, name: str) -> list[str]:
        """The words before a command that runs it in the namespace, with the same process id."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut(self, sender: str, receiver: str, *, both: bool = True) -> None:
        """Drop what ``sender`` sends to ``receiver``; with ``both``, also the reverse."""
        pairs = [(sender, receiver), (receiver, sender)] if both else [(sender, receiver)]
        for one, other in pairs:
            self._neighbour(
                one, "replace", self.hosts[other], "lladdr", _NOBODY, "nud", "permanent"
            )
            self._cut.add((one, other))

    def isolate(self, some: Iterable[str]) -> None:
        """Cut these hosts from all others."""
        inside = set(some)
        for one in inside:
            for other in self.hosts.keys() - inside:
                self.cut(one, other)

    def heal(self) -> None:
        """End all cuts."""
        while self._cut:
            one, other = self._cut.pop()
            self._neighbour(one, "del", self.hosts[other])

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("address", "add", f"{self.gateway}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for number, name in enumerate(self.hosts, 1):
                self._add(name, f"{self._id}v{number}")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _add(self, name: str, interface: str) -> None:
        namespace = self._namespace(name)
        _ip("netns", "add", namespace)
        peer = ["peer", "name", "eth0", "netns", namespace]
        _ip("link", "add", interface, "type", "veth", *peer)
        _ip("link", "set", interface, "master", self._bridge, "up")
        inside = ["-n", namespace]
        _ip(*inside, "address", "add", f"{self.hosts[name]}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", "eth0", "up")

    def _neighbour(self, name: str, action: str, *what: str) -> None:
        address, *more = what
        _ip("-n", self._namespace(name), "neighbour", action, address, *more, "dev", "eth0")

    def _namespace(self, name: str) -> str:
        return f"{self._id}-{name}"

    def _namespaces(self) -> list[str]:
        return [self._namespace(name) for name in self.hosts]


def _remove(bridge: str, namespaces: Sequence[str]) -> None:
    """Remove everything, if it exists; a namespace's interfaces are removed with it."""
    for namespace in namespaces:
        with suppress(NetworkError):
            _ip("netns", "delete", namespace)
    with suppress(NetworkError):
        _ip("link", "delete", bridge)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
