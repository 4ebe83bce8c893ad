"""The links of a mirror, as the configuration in force states them."""

import asyncio
from collections.abc import Callable, Iterable

from .config import LinkConfig, MirrorConfig, links
from .running import RunningLink
from .status import LinkStatus


class Mirror:
    """Runs links, from the first configuration on."""

    def __init__(self, run: Callable[[LinkConfig], RunningLink] = RunningLink) -> None:
        self._run = run
        self._links: dict[str, RunningLink] = {}
        self._changing = asyncio.Lock()
        self._status: tuple[LinkStatus, ...] = ()

    async def apply(self, config: MirrorConfig) -> None:
        """Put a configuration into force; links that it does not change go on undisturbed."""
        async with self._changing:
            wanted = {link.name: link for link in links(config)}
            changed = [
                link for name, link in self._links.items() if wanted.get(name) != link.config
            ]
            await _stop(changed)
            for link in changed:
                del self._links[link.config.name]
            for name, link_config in wanted.items():
                if name not in self._links:
                    self._links[name] = self._run(link_config)
                    self._links[name].start()

    def refresh(self) -> tuple[LinkStatus, ...]:
        """Return the status of each link as of now, and keep it."""
        self._status = tuple(link.status() for link in self._links.values())
        return self._status

    def status(self) -> tuple[LinkStatus, ...]:
        """Return the status of the last :meth:`refresh`; from any thread."""
        return self._status

    async def stop(self) -> None:
        """Stop every link, each within its ``drain_timeout_ms``."""
        async with self._changing:
            await _stop(self._links.values())
            self._links.clear()


async def _stop(stopping: Iterable[RunningLink]) -> None:
    await asyncio.gather(*(link.stop() for link in stopping))
