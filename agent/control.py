"""The configuration of an agent that is in force, and where ZooKeeper has it.

``/agents/<agent or group>/config``: TOML, as operators wrote it. ``/agents/<agent>/status``: JSON,
ephemeral. Names are escaped like those of consumer groups.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from qbus.errors import ConfigError
from qbus.names import escape
from qbus.service.control import Configured

from .config import AgentConfig, parse

AGENTS = "/agents"


def config_path(name: str) -> str:
    """Return the node with the configuration of an agent, or of a group of agents."""
    return f"{AGENTS}/{escape(name)}/config"


def status_path(name: str) -> str:
    """Return the node with the status of a running agent."""
    return f"{AGENTS}/{escape(name)}/status"


def configured_agent(
    apply: Callable[[AgentConfig], Awaitable[None]],
    defaults: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Configured[AgentConfig]:
    """Return what applies an agent's configurations.

    ``defaults`` are top-level fields that configurations need not state; ``environ`` holds the
    environment variables that their templates may name.
    """

    def read(text: bytes) -> AgentConfig:
        config = parse(text, defaults=defaults)
        check_environment(config, environ)
        return config

    return Configured(read, apply)


def check_environment(config: AgentConfig, environ: Mapping[str, str]) -> None:
    """Raise ConfigError if a template names an environment variable that is not set here."""
    for number, source in enumerate(config.sources, 1):
        templates = [("key", source.key), *((f"headers.{name}", t) for name, t in source.headers)]
        for name, template in templates:
            for variable in sorted(template.environment) if template is not None else ():
                if variable not in environ:
                    raise ConfigError(
                        f"source[{number}].{name} = {str(template)!r}: expected the environment"
                        f" variable {variable}, which is not set here"
                    )
