"""Has the cluster remember which topics were compacted by the brokers' default policy.

A topic that asks for compaction itself says so in its configuration, and keeps saying so. One that
was compacted because of ``log.cleanup.policy`` says nothing: were the default taken back, a replica
that is made anew would take the missing offsets for damage. So whoever has compacted a log of it
writes it down.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final, Protocol

from qbus.errors import ApiError

from ..controller import ConfigChange, remember_compacted, says_compacted
from ..metadata.image import Topic
from ..partition.background_tasks import BackgroundTasks
from .cleaner import LogCleaner

_log = logging.getLogger(__name__)

_EVERY_S: Final = 10.0
_COMPLAIN_EVERY_S: Final = 1800.0


class _Metadata(Protocol):
    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist now, by name."""


class _Editor(Protocol):
    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Alter configurations of topics; the error of each."""


class CompactedTopics:
    """Writes ``qbus.compacted`` to topics that were compacted and do not say so."""

    def __init__(
        self,
        cleaner: LogCleaner,
        metadata: _Metadata,
        editor: _Editor,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """``now_s``: a clock that never goes back, in seconds."""
        self._cleaner = cleaner
        self._metadata = metadata
        self._editor = editor
        self._now_s = now_s
        self._complained: dict[str, float] = {}  # when, of topics that cannot be altered

    def register(self, tasks: BackgroundTasks) -> None:
        """Look for such topics from time to time."""
        tasks.add("remember compacted topics", _EVERY_S, self.look)

    async def look(self) -> None:
        """Write it to those that there are now; what fails is tried again the next time."""
        topics = self._metadata.topics
        found = {
            name
            for name in self._cleaner.compacted_topics()
            if name in topics and not says_compacted(topics[name].config)
        }
        self._complained = {name: at for name, at in self._complained.items() if name in found}
        if not found:
            return
        changes = [ConfigChange(name, remember_compacted) for name in sorted(found)]
        errors = await self._editor.alter_topic_configs(changes)
        for change, error in zip(changes, errors, strict=True):
            if error is not None:
                self._complain(change.name, error)
                continue
            self._complained.pop(change.name, None)
            _log.info(
                "topic %s was compacted by the default log.cleanup.policy:"
                " its configuration says so from now on (qbus.compacted)",
                change.name,
            )

    def _complain(self, topic: str, error: ApiError) -> None:
        """Tell the operator, but not at each of the attempts."""
        now_s = self._now_s()
        if now_s - self._complained.get(topic, -_COMPLAIN_EVERY_S) < _COMPLAIN_EVERY_S:
            return
        self._complained[topic] = now_s
        _log.warning(
            "topic %s was compacted by the default log.cleanup.policy, and its configuration cannot"
            " say so yet (qbus.compacted): %s; it is tried again every %d s, and told again after"
            " half an hour. Leave log.cleanup.policy as it is meanwhile",
            topic,
            error,
            _EVERY_S,
        )
