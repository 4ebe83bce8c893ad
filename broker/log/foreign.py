"""Refuses data directories of others before anything is written to them."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from qbus.errors import ConfigError

from .names import parse_partition
from .properties import META_PROPERTIES

_KRAFT_LOG = "__cluster_metadata-0"
_UNKNOWN = "unknown"
_COPY = (
    "start with an empty --data-dir, and copy the topics from the running cluster with 'qbus"
    " mirror'"
)


def check_unclaimed(directories: Iterable[str], store: Path) -> None:
    """Check that no directory holds logs or an owner's mark while the metadata store is missing.

    Apache Kafka's data directories are like that, and those of a broker whose metadata are in
    ZooKeeper. A new store would have a new cluster id, and know none of the topics.

    Raises:
        ConfigError: one does; the message says what to do. OSError: one cannot be read.
    """
    if store.exists():
        return
    for directory in directories:
        if owner := _owner(directory):
            raise ConfigError(
                f"{directory} holds data of {owner.name}, and there is no {store}: nothing was"
                f" changed. To go on, {_COPY}; or, if the metadata are in ZooKeeper, name it with"
                " --zookeeper"
            )


def check_of_cluster(directories: Iterable[str], cluster_id: str | None, place: str) -> None:
    """Check that each directory with an owner's mark belongs to the cluster at ``place``.

    ``cluster_id``: None where there is no cluster yet. A directory that cannot be read is passed
    over: it is offline once it is opened.

    Raises:
        ConfigError: one belongs to another, or to Apache Kafka; the message says what to do.
    """
    for directory in directories:
        try:
            owner = _owner(directory)
        except OSError:
            continue
        if owner is None or owner.cluster_id == _UNKNOWN:
            continue
        if owner.has_broker_id:  # never written by Qbus
            raise ConfigError(
                f"{directory} holds data of {owner.name}: nothing was changed. To go on, {_COPY}"
            )
        if owner.cluster_id != cluster_id:
            there = "no cluster yet" if cluster_id is None else f"cluster {cluster_id}"
            raise ConfigError(
                f"{directory} holds data of {owner.name}, and {place} has {there}: nothing was"
                f" changed. To go on, {_COPY}; or name where the metadata of that cluster are with"
                " --zookeeper, without which they are in the first --data-dir"
            )


class _Owner(NamedTuple):
    """Whose data a directory holds, in words; the id of its cluster."""

    name: str
    cluster_id: str
    has_broker_id: bool = False


def _owner(path: str) -> _Owner | None:
    """Return whose data a directory holds, None if it holds none. Raises OSError."""
    directory = Path(path)
    if not directory.is_dir():
        return None
    names = {path.name for path in directory.iterdir() if path.is_dir()}
    properties = _properties(directory / META_PROPERTIES)
    cluster_id, is_old = properties.get("cluster.id", _UNKNOWN), "broker.id" in properties
    if _KRAFT_LOG in names or is_old:
        return _Owner(f"Apache Kafka (cluster {cluster_id})", cluster_id, is_old)
    if properties:
        return _Owner(f"cluster {cluster_id}", cluster_id)
    logs = sorted(name for name in names if parse_partition(name))
    return _Owner(f"another broker ({logs[0]})", _UNKNOWN) if logs else None


def _properties(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
