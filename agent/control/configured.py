"""The configuration of an agent that is in force, as far as its machine can do what it says."""

import os
from collections.abc import Awaitable, Callable, Mapping

from qbus.errors import ConfigError
from qbus.service.control import Configured

from ..config import AgentConfig, parse


def configured_agent(
    apply: Callable[[AgentConfig], Awaitable[None]],
    defaults: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Configured[AgentConfig]:
    """What applies an agent's configurations.

    ``defaults`` are top-level fields that configurations need not state; ``environ`` is what their
    templates may name.
    """

    def read(text: bytes) -> AgentConfig:
        config = parse(text, **(defaults or {}))
        check_environment(config, environ)
        return config

    return Configured(read, apply)


def check_environment(config: AgentConfig, environ: Mapping[str, str]) -> None:
    """Check that this machine has what templates name; raises ConfigError."""
    for number, source in enumerate(config.sources, 1):
        templates = [("key", source.key), *((f"headers.{name}", t) for name, t in source.headers)]
        for name, template in templates:
            for variable in sorted(template.environment) if template is not None else ():
                if variable not in environ:
                    raise ConfigError(
                        f"source[{number}].{name} = {str(template)!r}: expected the environment"
                        f" variable {variable}, which is not set here"
                    )
