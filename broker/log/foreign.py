"""Refuses a data directory whose metadata are not here, before anything is written to it."""

from collections.abc import Iterable
from pathlib import Path

from qbus.errors import ConfigError

from .names import parse_partition
from .properties import META_PROPERTIES

_KRAFT_LOG = "__cluster_metadata-0"


def check_unclaimed(directories: Iterable[str], store: Path) -> None:
    """Check that no directory holds logs or an owner's mark while the metadata store is missing.

    Apache Kafka's data directories are like that, and those of a broker whose metadata are in
    ZooKeeper. A new store would have a new cluster id, and know none of the topics.

    Raises:
        ConfigError: one does; the message says what to do. OSError: one cannot be read.
    """
    if store.exists():
        return
    for directory in map(Path, directories):
        if directory.is_dir() and (owner := _owner(directory)):
            raise ConfigError(
                f"{directory} holds data of {owner}, and there is no {store}: nothing was changed."
                " Start with an empty --data-dir, and copy the topics from the running cluster with"
                " 'qbus mirror'; or, if the metadata are in ZooKeeper, name it with --zookeeper"
            )


def _owner(directory: Path) -> str:
    """Whose data a directory holds, in words; empty if it holds none."""
    names = {path.name for path in directory.iterdir() if path.is_dir()}
    properties = _properties(directory / META_PROPERTIES)
    if _KRAFT_LOG in names or "broker.id" in properties:
        return f"Apache Kafka (cluster {properties.get('cluster.id', 'unknown')})"
    if properties:
        return f"cluster {properties.get('cluster.id', 'unknown')}"
    logs = sorted(name for name in names if parse_partition(name))
    return f"another broker ({logs[0]})" if logs else ""


def _properties(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
