"""An agent's line to ZooKeeper, and its start while that is away."""

import logging
from collections.abc import Callable
from typing import Any

from qbus.metadata import MetadataStore
from qbus.service.control import CentralControl, Configured, Origin
from qbus.service.control.central import first_answer

from ..config import AgentConfig
from .last_good import LastGood
from .nodes import config_path, status_path

_log = logging.getLogger(__name__)


def central_control(
    open_store: Callable[[], MetadataStore],
    name: str,
    group: str | None,
    configured: Configured[AgentConfig],
    last_good: LastGood,
    status: Callable[[], dict[str, Any]],
) -> CentralControl:
    """The control of an agent: its own configuration goes before its group's."""

    def keep(text: bytes) -> None:
        try:
            last_good.save(text)
        except OSError as error:
            _log.warning("%s cannot be written: %s", last_good.path, error)

    paths = [config_path(one) for one in (name, group) if one is not None]
    return CentralControl(open_store, paths, configured, status_path(name), status, keep=keep)


async def start_with(
    configured: Configured[AgentConfig],
    control: CentralControl,
    last_good: LastGood,
    patience_s: float,
) -> None:
    """Return with a configuration in force if there is any: ZooKeeper's, else the one kept.

    ZooKeeper may take ``patience_s`` seconds to answer; what it says later comes into force then.
    Raises OSError.
    """
    await first_answer(control, patience_s)
    if configured.config is None:
        await _take_kept(configured, last_good)


async def _take_kept(configured: Configured[AgentConfig], last_good: LastGood) -> None:
    text = last_good.load()
    if text is None:
        _log.warning("there is no configuration yet, and nothing to do")
        return
    refused, reason = configured.refused, configured.reason
    if await configured.take(text, Origin(str(last_good.path))):
        configured.refused, configured.reason = refused, reason
