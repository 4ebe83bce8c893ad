"""Configuration of topics, brokers, groups and what else brokers keep some for."""

from collections.abc import Iterable, Mapping
from typing import Any

from qbus.errors import ConfigError
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

from ..errors import check
from ..net.retry import each, retrying, succeeded
from ..types import ConfigEntry, ConfigKind, ConfigSource
from .base import AdminBase

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OF_ONE_BROKER = {ConfigKind.BROKER, ConfigKind.BROKER_LOGGER}


class Configs(AdminBase):
    """The part of the admin client that is about configuration."""

    async def describe_config(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        """The configuration of a topic, of a broker by its id, or of a group, ordered by key.

        A broker's with the name "" is the default that an operator has set for all of them.
        """
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)],
            include_documentation=True,
        )
        response: DescribeConfigsResponse = await self._ask_about(
            kind, name, ApiKey.DESCRIBE_CONFIGS, request
        )
        entries = []
        for result in response.results:
            check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")
            entries += [_entry(config) for config in result.configs]
        return sorted(entries, key=lambda entry: entry.name)

    async def describe_configs(
        self, resources: Iterable[tuple[ConfigKind, str]]
    ) -> dict[tuple[ConfigKind, str], list[ConfigEntry]]:
        """Several configurations, each as :meth:`describe_config` gives it."""
        return succeeded(await each(resources, lambda resource: self.describe_config(*resource)))

    async def alter_config(
        self,
        kind: ConfigKind,
        name: str,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - reads well where it is called
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some keys; the rest stays as it is (KIP-339).

        set: new values.
        unset: keys that return to their default.
        append, subtract: what lists, such as ``cleanup.policy``, get and lose.
        validate_only: only say whether it could be done.
        """
        changes = [
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, values in ((_SET, set), (_APPEND, append), (_SUBTRACT, subtract))
            for key, value in (values or {}).items()
        ]
        changes += [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in unset
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
            ],
            validate_only=validate_only,
        )
        response: IncrementalAlterConfigsResponse = await self._ask_about(
            kind, name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request
        )
        for result in response.responses:
            check(result.error_code, result.error_message, of=f"{kind.name.lower()} {name}")

    async def _ask_about(self, kind: ConfigKind, name: str, api: ApiKey, request: Any) -> Any:
        """A broker's configuration is its own business, everything else any broker's."""
        node_id = _node_id(name) if kind in _OF_ONE_BROKER and name else None

        async def attempt() -> Any:
            if node_id is None:
                return await self._cluster.ask_any(api, request)
            await self._cluster.need_node(node_id)
            return await self._cluster.ask(node_id, api, request)

        return await retrying(attempt, self._cluster.request_timeout)


def _node_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise ConfigError(f"a broker is named by its id, not {name!r}")
    return int(name)


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
