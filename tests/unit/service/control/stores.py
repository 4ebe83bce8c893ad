"""A metadata store whose sessions end when a test says so."""

from pathlib import Path

from qbus.agent.config import AgentConfig
from qbus.metadata import Create, MetadataStore, Op, Set, StoreUnusable
from qbus.metadata.embedded import EmbeddedStore

GOOD = b'bootstrap = "h:9"\ntopic = "t"\n[[source]]\npaths = ["/a.log"]\n'
OTHER = GOOD.replace(b"/a.log", b"/b.log")
BAD = GOOD + b'pahts = ["/c.log"]\n'


class Stores:
    """Opens one session after the other with one store; ``is_away``: it cannot be reached."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store"
        self._sessions: list[EmbeddedStore] = []
        self.is_away = False

    def open(self) -> MetadataStore:
        if self.is_away:
            return _Unreachable(self._path)
        self._sessions.append(EmbeddedStore(self._path))
        return self._sessions[-1]

    @property
    def session(self) -> EmbeddedStore:
        """The latest."""
        return self._sessions[-1]

    @property
    def count(self) -> int:
        return len(self._sessions)

    async def put(self, path: str, data: bytes) -> None:
        """Create or set a node."""
        found = await self.session.get(path)
        operation: Op = Create(path, data) if found is None else Set(path, data)
        await self.session.transaction([operation])

    async def prepare(self, path: str, data: bytes) -> None:
        """Put a node there before anybody has a session."""
        async with EmbeddedStore(self._path) as store:
            await store.transaction([Create(path, data)])


class _Unreachable(EmbeddedStore):
    async def start(self) -> None:
        raise StoreUnusable("nobody answers")


class Applied:
    """Remembers what was applied; fails when told to."""

    def __init__(self) -> None:
        self.configs: list[AgentConfig] = []
        self.failures: list[Exception] = []

    async def __call__(self, config: AgentConfig) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.configs.append(config)

    @property
    def paths(self) -> list[str]:
        return [config.sources[0].paths[0] for config in self.configs]
