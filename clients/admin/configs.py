"""Configuration of topics and brokers."""

from collections.abc import Iterable, Mapping
from typing import Any

from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from qbus.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ..cluster import Cluster, retrying
from ..errors import check
from ..types import ConfigEntry, ConfigKind, ConfigSource

_SET = 0
_DELETE = 1


async def describe(cluster: Cluster, kind: ConfigKind, name: str) -> list[ConfigEntry]:
    """The configuration of one thing, ordered by key."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)],
        include_documentation=True,
    )
    response: DescribeConfigsResponse = await _ask(
        cluster, kind, name, ApiKey.DESCRIBE_CONFIGS, request
    )
    entries = []
    for result in response.results:
        check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")
        entries += [_entry(config) for config in result.configs]
    return sorted(entries, key=lambda entry: entry.name)


async def alter(
    cluster: Cluster,
    kind: ConfigKind,
    name: str,
    to_set: Mapping[str, str],
    to_unset: Iterable[str],
    validate_only: bool,
) -> None:
    """Set some keys and return others to their default."""
    changes = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in to_set.items()
    ]
    changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in to_unset]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)],
        validate_only=validate_only,
    )
    response: IncrementalAlterConfigsResponse = await _ask(
        cluster, kind, name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request
    )
    for result in response.responses:
        check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")


async def _ask(cluster: Cluster, kind: ConfigKind, name: str, api: ApiKey, request: Any) -> Any:
    """A broker's configuration is its own business, a topic's any broker's."""

    async def attempt() -> Any:
        if kind is not ConfigKind.BROKER or not name:
            return await cluster.ask_any(api, request)
        await cluster.need_node(int(name))
        return await cluster.ask(int(name), api, request)

    return await retrying(attempt, cluster.request_timeout)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    try:
        source = ConfigSource(config.config_source)
    except ValueError:  # of a later protocol
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=source,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        documentation=config.documentation,
    )
