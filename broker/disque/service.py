"""The queues of jobs of one node, and what it has of other nodes."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from qbus.clock import Clock
from qbus.config import Address, BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import GROUP, JobIds, queue_of, topic_of
from qbus.metadata import StoreError

from ..controller import NewTopic
from ..controller.controller import ConfigChange
from ..metadata.image import (
    BrokersChanged,
    Event,
    Topic,
    TopicConfigChanged,
    TopicDeleted,
)
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from . import errors
from .adding import Adder
from .authentication import Authentication
from .authorization import Guard
from .errors import CommandError
from .expiry import Expiry
from .finding import DeliveredJobs, Finder, Place, Topics
from .job_queue import Job, JobQueue, Part, TakenJob, give_back
from .nodes import Node, Nodes
from .peers import Link, NodeUnavailableError, Peers, Reply
from .queues import JobSettings
from .silence import SilentNodes
from .world import Clients, World

_log = logging.getLogger(__name__)

IDLE_S: Final = 300.0
"""How long a queue without a topic, without jobs and without clients is kept in memory."""

MOST_QUEUES: Final = 10_000
"""How many queues without a topic are kept in memory: clients wait for them, or they are paused."""

PEER_TIMEOUT_S: Final = 10.0
"""How long another node's answer is waited for."""

_PATIENCE_S: Final = 0.5  # how long a client that takes jobs waits for a node that may have some
_REMOTE_WAIT_MS: Final = 30_000
_RETRY_S: Final = 0.5
_LINGER_S: Final = 1.0  # how long a node waits at others after its last client has ceased to
_KEEP_S: Final = 0.4  # how long it keeps a job of another node for a client
_CERTAIN_S: Final = 0.5
"""A reply that took no longer has jobs whose locks, which last a second at least, still run.

They do while it keeps them, too.
"""
_ON_ITS_WAY_S: Final = 0.1  # how long a job takes to its client
_NEVER: Final = float("inf")
_LED_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.2  # between two looks at what is waited for, though nothing seems to change


class DisqueService(PartitionListener[Partition]):
    """What the commands of all clients work on."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, cluster_id: str, address: Address, world: World
    ) -> None:
        """``address``: where clients reach this node."""
        self._world = world
        self.config = config
        self.clock = clock
        self.metadata = metadata = world.metadata
        self.partitions = partitions = world.partitions
        self.share_queues = queues = world.queues
        self.delays = delays = world.delays
        self.controller = world.controller
        self.address = address
        self.nodes = Nodes(cluster_id, config.node_id, address, metadata, world.tls_address)
        password = (config.disque_requirepass or "").encode()
        self.authentication = Authentication(
            password,
            world.users,
            delay_s=config.connection_failed_authentication_delay_ms / 1000,
            session_s=config.connections_max_reauth_ms / 1000,
            note=world.note,
        )
        access = world.access
        self.guard = Guard(access) if access is not None and access.is_restricted else None
        self.peers = Peers(world.link or Link(password=password), PEER_TIMEOUT_S)
        self.adder = Adder(delays, clock.time_ms, queues.offer)
        self.delivered = DeliveredJobs()
        self.settings = JobSettings(world.settings)
        self._topics = Topics(metadata.topics)
        self.finder = Finder(
            queues,
            delays,
            self.delivered,
            partitions.leader_of,
            self.settings,
            self.place,
            lambda: metadata.topics_by_id,
            config.node_id,
        )
        self._queues: dict[bytes, JobQueue] = {}
        self._creating: dict[str, asyncio.Future[None]] = {}
        self._remote: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self._unwanted: dict[Address, list[Job]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._silent = SilentNodes(self._greet, self.run, clock)
        self.is_draining = False
        self._is_group_known = False
        self._change: asyncio.Future[None] | None = None  # whoever waits for one
        self.expiry = Expiry(self.settings, clock.time_ms)
        self.run(self.expiry.run(self.local_queues))
        self.clients: Clients | None = None
        metadata.subscribe(self._on_events)

    def drain(self) -> None:
        """Answer the clients that wait, now and from now on."""
        self.is_draining = True
        for queue in self._queues.values():
            queue.close()

    def close(self) -> None:
        """Stop everything, and close the connections to other nodes."""
        self.drain()
        for task in [*self._tasks, *self._remote.values()]:
            task.cancel()
        self.peers.close()

    def run(self, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine beside everything else; what it fails with is logged."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the queues of jobs failed", exc_info=error)

    # Queues

    def find_queue(self, name: bytes) -> JobQueue | None:
        """A queue, if there is one: a topic, or one that clients wait for."""
        queue = self._queues.get(name)
        if queue is None and self.topic_name(name) in self.metadata.topics:
            queue = self.need_queue(name)
        return queue

    def need_queue(self, name: bytes) -> JobQueue:
        """A queue; its topic need not be there. Raises CommandError for a name that is none."""
        queue = self._queues.get(name)
        if queue is None:
            topic = self.topic_name(name)
            if len(self._queues) >= MOST_QUEUES + len(self.metadata.topics):
                raise CommandError("ERR there are too many queues without a job")
            queue = self._queues[name] = JobQueue(
                name,
                topic,
                self._loop.time,
                self.delivered,
                self._ask_others,
                self.settings,
                self._refresh,
            )
            known = self.metadata.topics.get(topic)
            if known is not None:
                queue.pause = self.metadata.topic_config(known).qbus_queue_pause
            self._refresh(queue)
        return queue

    def known_queues(self) -> list[JobQueue]:
        """The queues that were used since the start. For any thread."""
        return list(self._queues.values())

    def local_queues(self) -> list[JobQueue]:
        """The queues that this node has partitions of, or that its clients wait for."""
        for topic in self.metadata.topics.values():
            name = queue_of(topic.name)
            if name not in self._queues and self._is_queue(topic):
                self.need_queue(name)
        return [
            queue
            for queue in list(self._queues.values())
            if queue.blocked or queue.topic in self.metadata.topics
        ]

    def _is_queue(self, topic: Topic) -> bool:
        """Whether jobs of a topic were taken, or added, on partitions that are led here."""
        for index in range(len(topic.partitions)):
            partition = self.partitions.get_partition(topic.name, index)
            is_led = partition is not None and partition.is_leader
            if partition is not None and is_led and GROUP in self.share_queues.groups(partition):
                return True
        return False

    def topic_name(self, name: bytes) -> str:
        """The topic that a queue is. Raises CommandError."""
        try:
            return topic_of(name)
        except ValueError as error:
            raise CommandError(f"ERR {error}") from None

    def topic(self, queue: JobQueue) -> Topic | None:
        """The topic that a queue is, if it is there."""
        return self.metadata.topics.get(queue.topic)

    async def create_topic(self, queue: JobQueue, replicas: int) -> bool:
        """Create the topic that a queue is, and wait until its partitions are led.

        Whether it was this call that began it. ``replicas``: as many as that at least, if there are
        so many brokers. Raises CommandError.
        """
        creating = self._creating.get(queue.topic)
        is_first = creating is None
        if creating is None:
            creating = asyncio.ensure_future(self._create(queue, replicas))
            self._creating[queue.topic] = creating
            creating.add_done_callback(partial(self._on_created, queue.topic))
        await asyncio.shield(creating)
        return is_first

    def _on_created(self, topic: str, creating: asyncio.Future[None]) -> None:
        self._creating.pop(topic, None)
        if not creating.cancelled():
            creating.exception()  # those who wait have it, if they are still there

    def need_served(self, queue: JobQueue) -> None:
        """Raise CommandError MISCONF if a partition of the queue that is led here cannot be used.

        What is in it is not known then: an answer without it would look complete.
        """
        if (lost := self._lost(queue)) is not None:
            raise CommandError(errors.NOT_SERVED.format(lost))

    def need_some_served(self, queues: Sequence[JobQueue]) -> None:
        """Raise CommandError MISCONF if no partition of ``queues`` can be used, here or elsewhere.

        Only if one of them could not be: a queue without a topic is none of these.
        """
        lost = [found for queue in queues if (found := self._lost(queue)) is not None]
        if len(lost) == len(queues) > 0 and not any(map(self._is_served, queues)):
            raise CommandError(errors.NOT_SERVED.format(lost[0]))

    def _is_served(self, queue: JobQueue) -> bool:
        here = any(not part.partition.error for part in queue.parts)
        return here or bool(self.others_with(queue))

    def _lost(self, queue: JobQueue) -> int | None:
        """The first partition of a queue that this node leads and cannot use."""
        topic, me = self.topic(queue), self.metadata.brokers.get(self.config.node_id)
        if topic is None or me is None or not me.offline:
            return None
        for index, info in enumerate(topic.partitions):
            if info.leader == me.id and (topic.name, index) in me.offline:
                return index
        return None

    async def _create(self, queue: JobQueue, replicas: int) -> None:
        config: dict[str, str | None] = {"qbus.delay.enable": "true"}
        config["qbus.queue.retention"] = "acknowledged"
        if self.config.disque_queue_idle_ms >= 0:
            config["qbus.queue.idle.ms"] = str(self.config.disque_queue_idle_ms)
        count = min(max(replicas, self.nodes.usual_replicas), self.nodes.most_replicas)
        await self._make_group_known()
        new = NewTopic(queue.topic, self.nodes.size, count, config=config)
        (outcome,) = await self.controller.create_topics([new])
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise CommandError(f"ERR the queue cannot be created: {outcome}")
        end = self._loop.time() + _LED_WITHIN_S
        while self._loop.time() < end:
            self._refresh(queue)
            topic = self.topic(queue)
            if queue.parts or (topic is not None and self._leaders(topic)):
                return
            self.need_served(queue)
            await self.wait_for_change(end - self._loop.time())
        raise CommandError("ERR the queue has no leader yet, try again")

    def is_used(self, partition: Partition) -> bool:
        """Whether clients use a partition's queue now: they wait for jobs, or one is on its way.

        A paused queue is used, too: its deletion would end the pause.
        """
        queue = self._queues.get(queue_of(partition.topic))
        is_used = queue is not None and (queue.is_used or queue.pause != "none")
        return is_used or self.adder.is_adding(partition)

    async def reclaim(self, queue: JobQueue, most_s: float) -> None:
        """Have the partitions of a queue take jobs again that refuse them for now, or wait.

        At most ``most_s``, and not long in any case: the caller looks again.
        """
        paused = [part.partition for part in queue.parts if part.partition.is_paused]
        if self._world.reclaim is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._world.reclaim(paused)
        if any(partition.is_paused and not partition.error for partition in paused):
            await self.wait_for_change(most_s)

    async def wait_for_change(self, most_s: float) -> None:
        """Wait until the cluster's topics or brokers change, or what this node leads of them.

        At most ``most_s``, and not long in any case: the caller looks again.
        """
        if self._change is None:
            self._change = self._loop.create_future()
        await asyncio.wait([self._change], timeout=max(min(most_s, _LOOK_S), 0.0))

    def _changed(self) -> None:
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    async def _make_group_known(self) -> None:
        if not self._is_group_known:
            try:
                await self._world.groups.ensure(GROUP)
            except (ApiError, StoreError) as error:
                _log.warning("the group of jobs is not known to Kafka's tools yet: %s", error)
                return
            self._is_group_known = True

    def _refresh(self, queue: JobQueue) -> None:
        """Let a queue know which of its partitions are led here."""
        topic = self.topic(queue)
        before = {part.queue for part in queue.parts}
        queue.parts = [] if topic is None else list(self._parts(topic))
        for part in queue.parts:
            if part.queue not in before:
                self.run(self._start(queue, part))

    async def _start(self, queue: JobQueue, part: Part) -> None:
        """Have the group begin in a partition."""
        try:
            await part.queue.started()
        except ApiError as error:
            _log.debug("the queue of %s has not begun: %s", part.partition, error)
            return
        queue.look()

    def _parts(self, topic: Topic) -> Iterable[Part]:
        for index in range(len(topic.partitions)):
            partition = self.partitions.get_partition(topic.name, index)
            if partition is None or not partition.is_leader:
                continue
            try:
                queue = self.share_queues.queue(partition, GROUP, self.settings.group)
                yield Part(topic.id, partition, queue, JobIds(topic.id, index))
            except ApiError as error:
                _log.warning("the queue of %s cannot be used: %s", partition, error)

    # What happens to partitions and topics

    def leading(self, partition: Partition, leader_epoch: int) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        self._refresh_soon(partition)

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`."""
        self._refresh_soon(partition)

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        self._refresh_soon(partition)

    def _refresh_soon(self, partition: Partition) -> None:
        queue = self._queues.get(queue_of(partition.topic))
        if queue is not None:
            self._loop.call_soon(self._refresh, queue)
        self._loop.call_soon(self._changed)

    def _on_events(self, events: Sequence[Event]) -> None:
        self._topics.changed(events)
        self._loop.call_soon(self._changed)
        for event in events:
            if isinstance(event, BrokersChanged):
                self._forget_dead_nodes()
            elif isinstance(event, TopicConfigChanged):
                queue = self._queues.get(queue_of(event.topic.name))
                if queue is not None:
                    queue.set_pause(self.metadata.topic_config(event.topic).qbus_queue_pause)
                    self._loop.call_soon(self._refresh, queue)
            elif isinstance(event, TopicDeleted):
                queue = self._queues.get(queue_of(event.topic.name))
                if queue is not None:
                    self._loop.call_soon(self._refresh, queue)
        for queue in list(self._queues.values()):
            if queue.blocked:
                self._ask_others(queue)

    def _forget_dead_nodes(self) -> None:
        live = {node.name for node in self.nodes.all()}
        self.nodes.leaving &= live
        self._silent.keep(live)

    def look_after_queues(self) -> None:
        """Drop what is kept of queues that are no topics any more; settings for the others.

        And connections to where no node lives any more: nodes come back with other addresses.
        """
        self.peers.keep({node.for_nodes for node in self.nodes.all()})
        now = self._loop.time()
        for name, queue in list(self._queues.items()):
            is_used = queue.blocked or queue.topic in self.metadata.topics
            if not is_used and queue.pause == "none" and now - queue.used_at > IDLE_S:
                del self._queues[name]
            else:
                self._refresh(queue)

    # Other nodes

    def place(self, text: bytes) -> Place | None:
        """Where a job is, by its id; None: in no partition that there is."""
        return self._topics.place(text, self.metadata.topics_by_id)

    def _leaders(self, topic: Topic) -> list[Node]:
        """The nodes that lead partitions of a topic, but for this one."""
        ids = dict.fromkeys(info.leader for info in topic.partitions)
        found = [self.nodes.find(broker) for broker in ids if broker != self.config.node_id]
        return [node for node in found if node is not None]

    def others_with(self, queue: JobQueue) -> list[Node]:
        """The other nodes that lead partitions of a queue."""
        topic = self.topic(queue)
        return [] if topic is None else self._leaders(topic)

    async def ask(self, node: Node, *arguments: bytes | str | int) -> Reply:
        """A command that another node answers at once, from what it has. Raises CommandError."""
        try:
            return await self.peers.call(node.for_nodes, *arguments)
        except NodeUnavailableError as error:
            raise unavailable(node, error) from error

    async def ask_patiently(
        self, node: Node, *arguments: bytes | str | int, timeout_s: float = PEER_TIMEOUT_S
    ) -> Reply:
        """One that may wait there for replicas or a disk, for so long. Raises CommandError."""
        try:
            return await self.peers.call_patiently(node.for_nodes, *arguments, timeout_s=timeout_s)
        except NodeUnavailableError as error:
            raise unavailable(node, error) from error

    async def _greet(self, node: Node) -> None:
        await self.peers.greet(node.for_nodes, _PATIENCE_S)

    async def take_elsewhere(
        self, queues: Sequence[JobQueue], most: int, most_s: float
    ) -> list[TakenJob]:
        """Jobs of some queues that other nodes have now, from the first node that has any.

        None of them is waited for longer than a moment, nor all of them longer than ``most_s``
        seconds. Jobs that come later are for who waits then.
        """
        end = self._loop.time() + most_s
        names: dict[Node, list[bytes]] = {}
        for queue in queues:
            if not queue.is_paused_out:
                for node in self.others_with(queue):
                    names.setdefault(node, []).append(queue.name)
        for node, wanted in names.items():
            if self._silent.has(node):
                continue
            asking: asyncio.Task[list[TakenJob]] = self.run(self._take_from(node, most, wanted))
            left_s = max(end - self._loop.time(), 0.0)
            await asyncio.wait([asking], timeout=min(_PATIENCE_S, left_s))
            if not asking.done():
                asking.add_done_callback(self._on_late_jobs)
            elif taken := asking.result():
                return taken
            if self._loop.time() >= end:
                break
        return []

    async def _take_from(self, node: Node, most: int, names: Sequence[bytes]) -> list[TakenJob]:
        """Jobs that another node has now, which may be silent if it takes its time to say so."""
        since = self._loop.time()
        waiting = self._loop.call_later(_PATIENCE_S, self._silent.doubt, node)
        try:
            reply = await self.ask_patiently(
                node, "GETJOB", "NOHANG", "COUNT", most, "WITHCOUNTERS", "FROM", *names
            )
        except CommandError as error:
            _log.debug("no jobs from node %s: %s", node.name, error)
            return []
        finally:
            waiting.cancel()
        self._silent.discard(node)
        return await self._locked(node, jobs_of(reply, node.for_nodes), since)

    def _on_late_jobs(self, asking: asyncio.Task[list[TakenJob]]) -> None:
        """Jobs have come from another node for a client that was answered meanwhile."""
        if asking.cancelled() or asking.exception() is not None:
            return
        for taken in asking.result():
            queue = self._queues.get(taken.job.queue)
            if queue is None:
                self.run(self.give_back(taken))
            else:
                self._bring(queue, taken)

    def _bring(self, queue: JobQueue, taken: TakenJob) -> None:
        """Give another node's job to who waits for one here, now or in a moment."""
        if not queue.give_from_elsewhere(taken):
            queue.keep(taken)
            self._loop.call_later(_KEEP_S, self._give_unwanted_back, queue)

    def _ask_others(self, queue: JobQueue) -> None:
        """Wait at the other nodes that lead partitions of a queue, while a client waits here.

        Not for other nodes that wait here: each asks all others itself.
        """
        if self.is_draining or not queue.own_clients(1):
            return
        for node in self.others_with(queue):
            key = (queue.name, node.id)
            if key not in self._remote:
                task = asyncio.ensure_future(self._wait_elsewhere(queue, node))
                self._remote[key] = task
                task.add_done_callback(partial(self._on_wait_end, key))
                self._loop.call_later(_LINGER_S, self._end_waits, queue, True)

    def _end_waits(self, queue: JobQueue, was_blocked: bool) -> None:
        """Stop waiting at other nodes once no client has waited here for a while."""
        is_blocked = queue.own_clients(1) > 0
        if is_blocked or was_blocked:
            if any(name == queue.name for name, _ in self._remote):
                self._loop.call_later(_LINGER_S, self._end_waits, queue, is_blocked)
            return
        for (name, _), task in list(self._remote.items()):
            if name == queue.name:
                task.cancel()

    def _on_wait_end(self, key: tuple[bytes, int], task: asyncio.Task[None]) -> None:
        self._remote.pop(key, None)
        self._on_task_end(task)

    async def _wait_elsewhere(self, queue: JobQueue, node: Node) -> None:
        connection = self.peers.connect(node.for_nodes)
        try:
            while not queue.is_paused_out and node in self.others_with(queue):
                if connection.is_closed:
                    connection = self.peers.connect(node.for_nodes)
                since = self._loop.time()
                try:
                    reply = await connection.call(
                        [
                            *("QBUS.LOCAL", "GETJOB", "TIMEOUT", _REMOTE_WAIT_MS, "WITHCOUNTERS"),
                            *("COUNT", max(queue.own_clients(100), 1), "FROM", queue.name),
                        ],
                        _REMOTE_WAIT_MS / 1000 + PEER_TIMEOUT_S,
                    )
                except (NodeUnavailableError, CommandError) as error:
                    _log.debug("no jobs from node %s: %s", node.name, error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                came = jobs_of(reply, node.for_nodes)
                try:
                    locked = await self._locked(node, came, since)
                except asyncio.CancelledError:  # no client waits any more
                    self._keep_none(queue, came)
                    raise
                for taken in locked:
                    self._bring(queue, taken)
        finally:
            connection.close()

    async def _locked(self, node: Node, taken: list[TakenJob], since: float) -> list[TakenJob]:
        """Those of another node's jobs that are still this node's to give out.

        They were asked for at ``since``. The reply may have come late, as when a network was cut:
        then the node may have given them to somebody else meanwhile.
        """
        if not taken or self._loop.time() - since <= _CERTAIN_S:
            return taken
        ends = await asyncio.gather(*(self._lock_end(node, one.job) for one in taken))
        least = self._loop.time() + _KEEP_S + _ON_ITS_WAY_S
        return [one for one, end in zip(taken, ends, strict=True) if end > least]

    async def _lock_end(self, node: Node, job: Job) -> float:
        """Until when the lock runs at least under which another node gave a job, in seconds.

        -inf: it runs no more, as far as is known.
        """
        if job.is_at_most_once:
            return _NEVER  # nobody else gets it
        since = self._loop.time()
        try:
            shown = await self.ask(node, "SHOW", job.id)
        except CommandError as error:
            _log.debug("the job %s may be somebody else's: %s", job.id, error)
            return -_NEVER
        if not isinstance(shown, list):
            return -_NEVER  # it is done
        known = dict(zip(shown[::2], shown[1::2], strict=False))
        left_ms = known.get(b"next-requeue-within")
        is_same = (
            known.get(b"state") == b"active"
            and known.get(b"nacks") == job.nacks
            and known.get(b"additional-deliveries") == job.additional_deliveries
        )
        return since + left_ms / 1000 if is_same and isinstance(left_ms, int) else -_NEVER

    def _keep_none(self, queue: JobQueue, came: Sequence[TakenJob]) -> None:
        """Give jobs of another node back at once, but for those that can only be given out here."""
        if not self.is_draining:
            for taken in came:
                queue.keep(taken)
            self._give_unwanted_back(queue)

    def _give_unwanted_back(self, queue: JobQueue) -> None:
        for taken in queue.unwanted():
            self.run(self.give_back(taken))

    async def give_back(self, taken: TakenJob) -> None:
        """Let somebody else have a job whose client is gone.

        Another node is told of all in one command, with what the jobs count: where a lock has run
        out meanwhile, somebody else has the job, and it counts more.
        """
        if taken.node is None:
            await give_back(taken)
            return
        unwanted = self._unwanted.get(taken.node)
        if unwanted is None:
            unwanted = self._unwanted[taken.node] = []
            self._loop.call_soon(self._release, taken.node)
        unwanted.append(taken.job)

    def _release(self, node: Address) -> None:
        self.run(self._release_all(node, self._unwanted.pop(node)))

    async def _release_all(self, node: Address, jobs: Sequence[Job]) -> None:
        told = [word for job in jobs for word in (job.id, job.nacks, job.additional_deliveries)]
        try:
            await self.peers.call_patiently(node, "QBUS.RELEASE", *told)
        except (NodeUnavailableError, CommandError) as error:
            _log.debug("jobs are not given back: %s: %s", error, told)

    async def tell_others(self, *arguments: bytes | str | int) -> None:
        """Send a command to all other nodes, and do not mind those that cannot be reached."""

        async def tell(node: Node) -> None:
            try:
                await self.ask(node, *arguments)
            except CommandError as error:
                _log.warning("node %s was not told: %s", node.name, error)

        await asyncio.gather(*map(tell, self.nodes.others()))

    async def set_pause(self, queue: JobQueue, pause: str) -> None:
        """Pause a queue on all nodes, and for good: its topic's setting. Raises CommandError."""
        if self.topic(queue) is None:
            return

        def edited(config: Mapping[str, str]) -> dict[str, str]:
            rest = {name: text for name, text in config.items() if name != "qbus.queue.pause"}
            return rest if pause == "none" else {**rest, "qbus.queue.pause": pause}

        (error,) = await self.controller.alter_topic_configs([ConfigChange(queue.topic, edited)])
        if error is not None:
            raise CommandError(f"ERR the queue cannot be paused: {error}")


def unavailable(node: Node, error: NodeUnavailableError) -> CommandError:
    """What a client is told of a node that does not answer, or cannot be reached."""
    return CommandError(f"ERR node {node.name[:8]} cannot be asked: {error}")


def jobs_of(reply: Reply, node: Address) -> list[TakenJob]:
    """The jobs in another node's reply to GETJOB WITHCOUNTERS."""
    if not isinstance(reply, list):
        return []
    return [
        TakenJob(Job(queue, text.decode(), body, nacks, again), None, node=node)
        for queue, text, body, _, nacks, _, again in reply
    ]
