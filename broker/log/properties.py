"""``meta.properties``: whose data directory this is, in Kafka's format (version 1).

A broker that finds another cluster's or another broker's directory must not touch it.
"""

import base64
import logging
import os
from dataclasses import dataclass

from qbus.errors import ConfigError

from .files import Files, read_file, write_atomically
from .names import parse_partition

_logger = logging.getLogger(__name__)

META_PROPERTIES = "meta.properties"

_VERSION = "1"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a data directory, and the directory's own id: 16 bytes in URL-safe base64."""

    cluster_id: str
    node_id: int
    directory_id: str


def check_owner(files: Files, directory: str, cluster_id: str, node_id: int) -> MetaProperties:
    """What the directory's file says; a new directory becomes this broker's.

    Raises ConfigError when it is another's or makes no sense, OSError.
    """
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        if any(parse_partition(name) for name in files.list(directory)):
            _logger.warning(
                "%s is missing: the partitions beside it are taken for those of broker %d of"
                " cluster %s",
                *(path, node_id, cluster_id),
            )
        properties = MetaProperties(cluster_id, node_id, _new_id())
        write_atomically(files, path, encode_properties(properties))
        return properties
    found = decode_properties(read_file(files, path), path)
    if found.cluster_id != cluster_id:
        raise ConfigError(f"{path}: belongs to cluster {found.cluster_id}, this is {cluster_id}")
    if found.node_id != node_id:
        raise ConfigError(f"{path}: belongs to broker {found.node_id}, this is {node_id}")
    return found


def encode_properties(properties: MetaProperties) -> bytes:
    """The file's content."""
    return (
        f"cluster.id={properties.cluster_id}\n"
        f"directory.id={properties.directory_id}\n"
        f"node.id={properties.node_id}\n"
        f"version={_VERSION}\n"
    ).encode()


def decode_properties(data: bytes, path: str) -> MetaProperties:
    """The owner that the content of ``path`` names. Raises ConfigError."""
    lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    if pairs.get("version") != _VERSION:
        raise ConfigError(f"{path}: unknown version {pairs.get('version')}")
    try:
        node_id = int(pairs["node.id"])
        return MetaProperties(pairs["cluster.id"], node_id, pairs.get("directory.id", ""))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path}: {error} is missing or malformed") from error


def _new_id() -> str:
    return base64.urlsafe_b64encode(os.urandom(_ID_BYTES)).decode().rstrip("=")
