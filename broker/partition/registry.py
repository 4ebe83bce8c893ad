"""The partitions that this broker holds: opened, changed and deleted as the metadata says.

Each change brings a topic to what the metadata says of it now, so several changes may come
together. What cannot be done now, because a disk is full or offline, is tried again later.

A change waits for a few new logs, so that a new topic can be used at once. It does not wait for
many: these are made in the background, in the order of the changes, and what the metadata says of a
partition by then decides what becomes of its log. Requests are refused until it is there. Likewise
a change waits until a few partitions of deleted topics are closed and their logs are gone, but not
for many: of these it only has requests refused, and the rest follows soon, before anything is done
for another topic of the same name.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from types import MappingProxyType

from qbus.config import BrokerConfig, TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreError
from qbus.service.threads import Threads

from ..log import Log, LogConfig, LogManager, TopicPartition
from ..metadata.image import (
    BrokerConfigChanged,
    BrokersChanged,
    ClientQuotasChanged,
    Event,
    GroupConfigChanged,
    PartitionInfo,
    Topic,
    TopicCreated,
    TopicDeleted,
    UserConfigChanged,
)
from .events import PartitionEvents, PartitionListener
from .log_removal import LogRemoval
from .metadata import Metadata
from .partition import Partition
from .roles import Roles, is_held

_log = logging.getLogger(__name__)

_AT_ONCE = 8  # logs that are being made: disks take several writes as one
_FEW = 64  # logs that a change waits for
_REST_S = 0.2  # before many are made or closed at most: whoever wants that is answered first
_REST_EACH_S = 0.0002
_CLOSED_AT_ONCE = 50  # topics, between which other tasks run
_FSYNC = "fsync"
_LOOK_S = 0.002
_MOVING = "its log moves"

NOTHING: Mapping[int, Partition] = MappingProxyType({})


@dataclass(slots=True)
class Traffic:
    """What went in and out: bytes and records since the start."""

    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    replicated_bytes: int = 0

    def add(self, other: "Partition | Traffic") -> None:
        """Add what another one counted."""
        self.bytes_in += other.bytes_in
        self.messages_in += other.messages_in
        self.bytes_out += other.bytes_out
        self.replicated_bytes += other.replicated_bytes


class ClosedTotals(PartitionListener[Partition]):
    """The counts of partitions that are not held here any more: totals must not go back."""

    def __init__(self) -> None:
        self.all = Traffic()
        self.by_topic: dict[str, Traffic] = {}

    def closed(self, partition: Partition) -> None:
        """Add what ``partition`` counted."""
        self.all.add(partition)
        self.by_topic.setdefault(partition.topic, Traffic()).add(partition)


class PartitionRegistry:
    """Holds partitions as the metadata says. ``topics`` finds them by topic name and topic id."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        logs: LogManager,
        metadata: Metadata,
        make_partition: Callable[[str, int, Log], Partition],
        roles: Roles,
        events: PartitionEvents[Partition],
    ) -> None:
        """``make_partition`` is given a topic's name, the partition's index, and its log.

        ``events`` are those of the partitions that it makes.
        """
        self.topics: dict[str | bytes, dict[int, Partition]] = {}
        self.closed_totals = ClosedTotals()
        events.subscribe(self.closed_totals)
        self._events = events
        self._config = config
        self._node_id = node_id
        self._logs = logs
        self._metadata = metadata
        self._make_partition = make_partition
        self._roles = roles
        self._ids: dict[str, bytes] = {}
        self._failed: set[tuple[str, int]] = set()
        self._leaving: dict[str, list[Partition]] = {}  # of deleted topics, and not closed yet
        self._closed = 0  # of those, how many are, and are not written down yet
        self._closer: asyncio.Task[None] | None = None
        self._opening: dict[tuple[str, int], bool] = {}  # whether they are known to be new
        self._to_open: deque[tuple[str, int]] = deque()
        self._openers: set[asyncio.Task[None]] = set()
        self._threads = Threads(_AT_ONCE, "qbus-open")
        self._is_stopping = False
        self._is_any_aside = False  # and not known yet whether its topic was deleted
        self._removal = LogRemoval(logs, self._threads)
        self._settings: dict[str, tuple[TopicConfig, LogConfig]] = {}
        self._brought: dict[str, tuple[Sequence[PartitionInfo], TopicConfig]] = {}
        self._changing = asyncio.Lock()

    def __iter__(self) -> Iterator[Partition]:
        for name in list(self._ids):
            yield from list(self.topics.get(name, NOTHING).values())
        for partitions in list(self._leaving.values()):
            yield from partitions

    def traffic_by_topic(self) -> dict[str, Traffic]:
        """What went in and out of each topic that is held here, those of closed replicas included.

        What is gone with a topic is forgotten.
        """
        closed = self.closed_totals.by_topic
        found = {name: Traffic() for name in list(self._ids)}
        for partition in self:
            found.setdefault(partition.topic, Traffic()).add(partition)
        for name in list(closed):
            if name in found:
                found[name].add(closed[name])
            else:
                closed.pop(name, None)
        return found

    @property
    def opening(self) -> int:
        """How many partitions are to be held here and are being opened."""
        return len(self._opening)

    @property
    def deleting(self) -> int:
        """How many replicas of deleted topics have logs that are still to be removed."""
        return len(self._removal) + sum(map(len, self._leaving.values())) + self._closed

    @property
    def failed(self) -> int:
        """How many partitions should be held here and could not be opened."""
        return len(self._failed)

    def offline(self) -> frozenset[TopicPartition]:
        """The replicas that should be held here and cannot be used: their disk or log failed."""
        unusable = (
            TopicPartition(partition.topic, partition.index)
            for name in list(self._ids)
            for partition in self.topics.get(name, NOTHING).values()
            if partition.is_lost
        )
        return frozenset(unusable) | {TopicPartition(*key) for key in self._failed}

    def get_partition(self, topic: str | bytes, index: int) -> Partition | None:
        """One partition by its topic's name or id, if it is here."""
        return self.topics.get(topic, NOTHING).get(index)

    def why_missing(self, topic: str | bytes, index: int) -> ErrorCode:
        """What a request gets for a partition that is not in ``topics``: Kafka's codes."""
        if isinstance(topic, bytes):
            known = self._metadata.topics_by_id.get(topic)
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = self._metadata.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (known.name, index) in self._failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def start(self) -> None:
        """Hold what the metadata says now, and follow it from here on.

        Before all others that do: until a change is followed here, records for a new topic are
        taken for the one that had its name, and partitions are led that others lead by now.
        """
        self._metadata.subscribe(self.follow, is_first=True)
        async with self._changing:
            await self._bring(self._metadata.topics, patient=True)
        await self._remove_strays()

    async def stop(self) -> None:
        """Open nothing any more; returns when nothing is under way."""
        self._is_stopping = True
        while self._openers:
            await asyncio.wait(self._openers)
        if self._closer is not None:
            self._closer.cancel()
            await asyncio.wait([self._closer])
        async with self._changing:  # logs are not closed before that ends
            pass
        await self._removal.stop()
        await asyncio.to_thread(self._threads.shutdown)

    async def follow(self, events: Sequence[Event]) -> None:
        """Make changes of the metadata true; returns when they are, but for many logs."""
        gone: dict[str, list[Partition]] = {}
        changed: dict[str, None] = {}
        new: set[str] = set()
        for event in events:
            match event:
                case TopicDeleted(topic):
                    gone.setdefault(topic.name, []).extend(self._forget(topic))
                case BrokerConfigChanged():
                    changed |= dict.fromkeys(self._metadata.topics)
                case (
                    BrokersChanged()
                    | GroupConfigChanged()
                    | UserConfigChanged()
                    | ClientQuotasChanged()
                ):
                    pass
                case _:
                    changed[event.topic.name] = None
                    if isinstance(event, TopicCreated):
                        new.add(event.topic.name)
        closed = self._close_few(gone)
        async with self._changing:
            await self._remove_deleted(closed)
            await self._bring(changed, new)

    async def reopen(
        self, partition: Partition, place: Callable[[int], Log], patience_s: float
    ) -> bool:
        """Close ``partition``, and open it again with the log that ``place`` gives in a thread.

        Clients' records are refused meanwhile, with an error that they try again after; before,
        what was appended is acknowledged, and changes of the in-sync replicas are known here.
        ``place`` gets the high watermark.

        Returns:
            False: nothing was done, for it is not held any more, or there was still something to
            wait for after ``patience_s``.
        """
        name, index = partition.topic, partition.index
        async with self._changing:
            if self.get_partition(name, index) is not partition:
                return False
            partition.pause_appends(_MOVING)
            try:
                if not await _until(lambda: self._owes_nothing(partition), patience_s):
                    return False
            finally:
                partition.resume_appends(_MOVING)
            if self.get_partition(name, index) is not partition:
                return False  # the topic was deleted meanwhile
            topic_id = self._ids[name]
            del self.topics[name][index]
            self._close(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await _until(lambda: partition.is_settled, math.inf)
            try:
                log = await asyncio.to_thread(place, partition.high_watermark)
            except Exception as error:
                self._failed.add((name, index))
                _log.error("%s cannot be opened for now: %s", partition, error)
                if not isinstance(error, ApiError):
                    raise
                return True
            topic = self._metadata.topics.get(name)
            if self._ids.get(name) == topic_id and topic is not None:
                self._open(topic, index, log)
            else:
                await self._delete([(name, index)])
            return True

    def _owes_nothing(self, partition: Partition) -> bool:
        """Whether a partition can be closed without a word to anybody.

        A leader that is opened again counts the in-sync replicas that the metadata here tells of:
        with fewer than the store has, it would acknowledge what one of them lacks.
        """
        followers, topic = partition.followers, self._metadata.topics.get(partition.topic)
        if followers is None or topic is None or topic.id != self._ids.get(topic.name):
            return True  # a follower always has something under way while its leader gets records
        known = topic.partitions[partition.index].version
        is_known = followers.proposed is None and known >= followers.version
        is_suspected = bool(partition.error)  # it would not be once it is opened again
        return is_known and not is_suspected and partition.is_settled

    async def retry(self) -> None:
        """Try again to open what could not be opened, and to remove what could not be removed."""
        self._removal.retry()
        if self._to_open and not self._openers:
            self._start_openers()
        if self._failed:
            async with self._changing:
                await self._bring({name for name, _ in self._failed})
        if self._is_any_aside:  # last, as the store may let it wait
            deleted = await self._deleted_topics()
            if deleted is not None:
                self._remove_aside(deleted)
                self._name_strays({})

    # One topic

    def _forget(self, topic: Topic) -> Collection[Partition]:
        """Refuse the topic's requests from now on; the partitions that it had, to be closed."""
        self.topics.pop(topic.id, None)
        partitions = self.topics.pop(topic.name, {})
        self._ids.pop(topic.name, None)
        self._settings.pop(topic.name, None)
        self._brought.pop(topic.name, None)
        if self._failed:
            self._failed = {failed for failed in self._failed if failed[0] != topic.name}
        return partitions.values()

    def _close_few(self, gone: Mapping[str, Sequence[Partition]]) -> list[Partition]:
        """Close the partitions of deleted topics, if there are few; else soon. Those closed now."""
        if sum(map(len, gone.values())) > _FEW:
            for name, partitions in gone.items():
                self._leaving.setdefault(name, []).extend(partitions)
            if self._closer is None:
                self._closer = asyncio.create_task(self._close_leaving())
            return []
        closed = [partition for partitions in gone.values() for partition in partitions]
        self._close_deleted(closed)
        return closed

    def _close_deleted(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            try:
                self._close(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            except Exception:  # noqa: BLE001 - who waits at the others is to hear, and all are to go
                _log.exception("something cannot go on after %s was deleted", partition)

    async def _close_leaving(self) -> None:
        """Let go of the partitions of many deleted topics, once whoever deleted them is answered.

        What waits at them is refused by then at the latest.
        """
        count = sum(map(len, self._leaving.values()))
        await asyncio.sleep(min(count * _REST_EACH_S, _REST_S))
        async with self._changing:
            self._closer = None  # what comes from here on gets another
            try:
                await self._let_go()
            except Exception:  # noqa: BLE001 - the next start removes what is left
                _log.exception("partitions of deleted topics cannot be closed")

    async def _let_go(self) -> None:
        """Close the partitions of deleted topics that are still open, and remove their logs."""
        gone: list[Partition] = []
        while self._leaving:
            for name in list(islice(self._leaving, _CLOSED_AT_ONCE)):
                partitions = self._leaving.pop(name)
                self._closed += len(partitions)
                gone += partitions
                self._close_deleted(partitions)
            await asyncio.sleep(0)
        try:
            await self._remove_deleted(gone)
        finally:
            self._closed = 0

    async def _remove_deleted(self, gone: Collection[Partition]) -> None:
        """Remove the logs of deleted topics: some now, many in the background."""
        for partition in gone:
            if partition.is_truncating:
                await partition.truncated()
        doomed: dict[TopicPartition, bytes] = {}
        now: list[tuple[str, int]] = []
        for partition in gone:
            log = self._logs.get(partition.topic, partition.index)
            if log is None or log.topic_id != partition.log.topic_id:
                continue  # it has made way for that of another topic of the same name
            if log.topic_id is None or len(gone) <= _FEW:
                now.append((partition.topic, partition.index))
            else:
                doomed[log.topic_partition] = log.topic_id
        if doomed:
            await self._removal.begin(doomed)
        await self._delete(now)

    def _close(self, partition: Partition, code: ErrorCode) -> None:
        self._roles.leave(partition, code)
        for closed in self._events.closed:
            closed(partition)

    async def _bring(
        self, names: Iterable[str], new: Collection[str] = (), *, patient: bool = False
    ) -> None:
        """Bring topics to what the metadata says; ``new`` ones cannot have logs here yet.

        ``patient``: wait for all logs, however many there are.
        """
        for name in list(names):  # topics come and go meanwhile
            if name in self._leaving:
                await self._let_go()
            topic = self._metadata.topics.get(name)
            if topic is None:
                continue
            await self._prepare(topic)
            await self._remove_moved(topic)
            now = self._metadata.topics.get(name)
            if now is not None and now.id == topic.id:  # else that is about to be followed
                for index in self._update(topic):
                    self._open_soon(name, index, is_new=name in new)
        if patient or len(self._opening) <= _FEW:
            self._start_openers()
            if self._openers:
                await asyncio.wait(self._openers)
        elif self._to_open:
            rest_s = min(len(self._to_open) * _REST_EACH_S, _REST_S)
            asyncio.get_running_loop().call_later(rest_s, self._start_openers)

    async def _prepare(self, topic: Topic) -> None:
        for index, partition in list(self.topics.get(topic.id, NOTHING).items()):
            if is_held(topic, index, self._node_id):
                await self._roles.prepare(partition, topic.partitions[index])

    async def _remove_moved(self, topic: Topic) -> None:
        """Give up what was moved to other brokers: the topic lives on, and they have it all."""
        partitions = self.topics.get(topic.id, NOTHING)
        for index in range(len(topic.partitions)):
            if is_held(topic, index, self._node_id) or (topic.name, index) in self._opening:
                continue
            self._failed.discard((topic.name, index))
            partition = partitions.get(index)
            if partition is not None:
                del self.topics[topic.name][index]
                self._close(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                await partition.truncated()
            log = self._logs.get(topic.name, index)
            if log is not None and log.topic_id == topic.id:
                _log.info("%s-%d moved to other brokers: deleting it here", topic.name, index)
                await self._delete([(topic.name, index)])

    def _update(self, topic: Topic) -> list[int]:
        """Bring the partitions that are open up to date, open those that have logs.

        Returns:
            Those that are to be held here and have no log yet.
        """
        self._ids[topic.name] = topic.id
        self.topics[topic.id] = partitions = self.topics.setdefault(topic.name, {})
        config = self._metadata.topic_config(topic)
        before, config_before = self._brought.get(topic.name, ((), None))
        if config is not config_before:
            before = ()
        missing = []
        for index, info in enumerate(topic.partitions):
            if self._node_id not in info.replicas:
                continue
            partition = partitions.get(index)
            if partition is not None:
                is_known = index < len(before) and before[index] is info
                if not (is_known and _has_role(partition, info)):
                    self._apply(partition, info, config)
                continue
            log = self._logs.get(topic.name, index)
            is_opening = (topic.name, index) in self._opening  # perhaps for what had the name
            if is_opening or log is None or log.topic_id not in {None, topic.id}:
                missing.append(index)
            else:
                self._open(topic, index, log)
        self._brought[topic.name] = (topic.partitions, config)  # once all of that was done
        return missing

    def _open(self, topic: Topic, index: int, log: Log) -> None:
        partition = self._make_partition(topic.name, index, log)
        for opened in self._events.opened:
            opened(partition)
        self._apply(partition, topic.partitions[index], self._metadata.topic_config(topic))
        self.topics[topic.name][index] = partition
        self._failed.discard((topic.name, index))

    def _apply(self, partition: Partition, info: PartitionInfo, config: TopicConfig) -> None:
        settings = self._settings_of(partition.topic, config)
        if settings is not partition.log.config and settings != partition.log.config:
            partition.log.update_config(settings)
        partition.configure(
            durable=is_durable(config), min_insync_replicas=config.min_insync_replicas
        )
        self._roles.take(partition, info)

    def _settings_of(self, topic: str, config: TopicConfig) -> LogConfig:
        """What ``config`` makes of a topic's logs, which is the same for all of them."""
        known = self._settings.get(topic)
        if known is None or known[0] is not config:
            known = self._settings[topic] = (config, log_config(config, self._config))
        return known[1]

    async def _remove_strays(self) -> None:
        """Remove what is left of topics that are known to be deleted.

        Never delete others: metadata that was lost or mixed up would take the data along.
        """
        logs, topics = self._logs.logs(), self._metadata.topics_by_id
        strays = {
            key: log.topic_id
            for key, log in logs.items()
            if log.topic_id is not None and log.topic_id not in topics
        }
        if strays or self._logs.strays():
            deleted = await self._deleted_topics() or ()
            strays = {key: topic_id for key, topic_id in strays.items() if topic_id in deleted}
            count = len(strays) + self._remove_aside(deleted)
            if count:
                _log.info("removing %d logs of topics that were deleted meanwhile", count)
        if strays:
            await self._removal.begin(strays)
        self._name_strays({key: log for key, log in logs.items() if key not in strays})

    def _remove_aside(self, deleted: Collection[bytes]) -> int:
        """Remove what was set aside and is known to be of ``deleted`` topics; how many logs."""
        return self._logs.remove_strays({*deleted} - {*self._metadata.topics_by_id})

    async def _deleted_topics(self) -> Collection[bytes] | None:
        """The ids of topics that were deleted lately; None: they cannot be read, which is told."""
        self._is_any_aside = False  # what is set aside from here on may be of one deleted later
        try:
            return await self._metadata.deleted_topics()
        except StoreError as error:
            self._is_any_aside = True
            _log.warning("which topics were deleted cannot be read: %s", error)
            return None

    def _name_strays(self, logs: Mapping[TopicPartition, Log]) -> None:
        strays = sorted(log.directory for key, log in logs.items() if self._is_stray(key, log))
        aside, topics = self._logs.strays(), self._metadata.topics_by_id
        strays += sorted(path for path, topic_id in aside.items() if topic_id not in topics)
        if strays:
            _log.warning(
                "%d directories hold partitions of topics that do not exist and are left alone;"
                " of topics that were deleted while the broker was down, some may be left."
                " To free their space, stop the broker and delete them: %s",
                len(strays),
                " ".join(strays),
            )
        kept = sorted(path for path, topic_id in aside.items() if topic_id in topics)
        if kept:
            _log.error(
                "%d directories were set aside by a start at which the metadata told of other"
                " topics. Theirs exist, so keep them: they may be the only copies: %s",
                len(kept),
                " ".join(kept),
            )

    def _is_stray(self, key: TopicPartition, log: Log) -> bool:
        """Whether a log is of no topic that there is, or of one that had the name before.

        What is to make way for a log of the topic, and could not yet, is none.
        """
        topic_id = self._ids.get(key.topic)
        return topic_id is None or (
            log.topic_id not in {None, topic_id} and key not in self._failed
        )

    # Disks

    def _open_soon(self, name: str, index: int, *, is_new: bool) -> None:
        """Queue a partition for opening.

        One that is being opened is compared with the metadata again when its log is made.
        """
        key = name, index
        if self._is_stopping:
            return
        if key not in self._opening:
            self._to_open.append(key)
        self._opening[key] = self._opening.get(key, False) or is_new

    def _start_openers(self) -> None:
        """Open what waits, several at a time."""
        wanted = 0 if self._is_stopping else min(_AT_ONCE, len(self._opening))
        while len(self._openers) < wanted:
            self._openers.add(asyncio.create_task(self._open_waiting()))

    async def _open_waiting(self) -> None:
        """Open partitions, one after the other, until none waits."""
        try:
            while self._to_open:
                await self._open_next(self._to_open.popleft())
        finally:  # in the same turn of the loop: one that has ended must not count as running
            self._openers -= {asyncio.current_task()}

    async def _open_next(self, key: tuple[str, int]) -> None:
        """Open a partition, or remember that it failed."""
        try:
            await self._create(*key)
        except Exception as error:  # noqa: BLE001 - the others must be opened
            known = None if isinstance(error, ApiError) else error
            _log.error("%s-%d cannot be opened for now: %s", *key, error, exc_info=known)
            if self._wanted(*key) is not None:
                self._failed.add(key)
        finally:
            del self._opening[key]

    async def _create(self, name: str, index: int) -> None:
        """Make the log of a partition and open it, as long as the metadata asks for it."""
        log: Log | None = None
        while True:
            topic = None if self._is_stopping else self._wanted(name, index)
            if topic is not None and log is not None and log.topic_id == topic.id:
                self._open(topic, index, log)
                return
            if log is not None and not self._is_stopping:  # else the next start finds it
                log = None  # the topic was deleted, or moved to other brokers, meanwhile
                await self._delete([(name, index)])
            elif topic is not None:
                settings = self._settings_of(name, self._metadata.topic_config(topic))
                is_new = self._opening[name, index]
                log = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._create_log, topic, index, settings, is_new
                )
            else:
                return

    def _wanted(self, name: str, index: int) -> Topic | None:
        """The topic, if a partition of it is to be held here, as far as that was followed."""
        topic = self._metadata.topics.get(name)
        if topic is None or self._ids.get(name) != topic.id:
            return None
        return topic if is_held(topic, index, self._node_id) else None

    def _create_log(self, topic: Topic, index: int, settings: LogConfig, is_new: bool) -> Log:
        """In a thread. A log of another topic that had this name is in the way, and goes."""
        log = self._logs.get(topic.name, index)
        if log is not None and log.topic_id not in {None, topic.id}:
            self._make_way(TopicPartition(topic.name, index), log.topic_id)
        return self._logs.create(topic.name, index, topic.id, settings, is_new=is_new)

    def _make_way(self, key: TopicPartition, topic_id: bytes) -> None:
        """In a thread. Remove a log of a deleted topic; keep aside what may be another's.

        It may be gone by now: many are removed in the background. Raises ApiError.
        """
        if self._removal.has(key, topic_id):
            for error in self._logs.delete_many([key], [topic_id]).values():
                raise error
        else:
            self._logs.set_aside(key, topic_id)
            self._is_any_aside = True

    async def _delete(self, partitions: Collection[tuple[str, int]]) -> None:
        """Delete logs: those that are here."""
        found = [TopicPartition(*one) for one in partitions if self._logs.get(*one) is not None]
        if not found:
            return
        errors = await asyncio.to_thread(self._logs.delete_many, found)
        for partition, error in errors.items():
            _log.error("the log of %s is left behind: %s", partition, error)


def _has_role(partition: Partition, info: PartitionInfo) -> bool:
    """Whether a partition leads or follows as ``info`` says, and does not refuse everything."""
    return (partition.leader_id, partition.leader_epoch) == (info.leader, info.leader_epoch)


async def _until(is_true: Callable[[], bool], patience_s: float) -> bool:
    """Wait until something is true; whether it is."""
    deadline = monotonic() + patience_s
    while not is_true():
        if monotonic() >= deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """The settings of the logs of a topic."""
    return LogConfig.from_settings(
        {
            **topic.values,
            "producer.id.expiration.ms": broker.producer_id_expiration_ms,
            "max.producers": broker.producer_ids_max_per_partition,
        }
    )


def is_durable(topic: TopicConfig) -> bool:
    """Whether records count as acknowledged only once they are on stable storage."""
    return topic.qbus_durability == _FSYNC
