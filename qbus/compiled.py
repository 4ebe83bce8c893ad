"""What is compiled where there is a C compiler, and which form of it a process runs.

mypyc makes C of the modules below, those on the way of a record through the broker and the
producer, and of a line through the agent; the readable Python is their only source, and what runs
where nothing was compiled. The compiled form lies apart, in ``qbus/_compiled``: a checkout whose
sources have changed since runs the sources. So does a process whose environment says
``QBUS_COMPILED=0``.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

MODULES = (
    "qbus.clock",
    "qbus.frames",
    "qbus.jobs",
    "qbus.records.control",
    "qbus.records.header",
    "qbus.records.plain",
    "qbus.service.event_loop.ticks",
    "qbus.service.token_bucket",
    "qbus.wire.codec",
    "qbus.wire.lean",
    "qbus.wire.primitives",
    "qbus.wire.source",
    "qbus.agent.delivery.dispatcher",
    "qbus.agent.delivery.partition_sender",
    "qbus.agent.delivery.pending_batch",
    "qbus.agent.positions.journal",
    "qbus.agent.positions.position",
    "qbus.agent.positions.positions",
    "qbus.agent.positions.writer",
    "qbus.agent.tailing.ack_tracker",
    "qbus.agent.tailing.content",
    "qbus.agent.tailing.descriptors",
    "qbus.agent.tailing.file",
    "qbus.agent.tailing.framing",
    "qbus.agent.tailing.generations",
    "qbus.agent.tailing.registry",
    "qbus.agent.tailing.source",
    "qbus.agent.tailing.tailer",
    "qbus.agent.tailing.text",
    "qbus.agent.tailing.watching",
    "qbus.broker.metrics",
    "qbus.delay",
    "qbus.broker.authorization.access",
    "qbus.broker.delay.contents",
    "qbus.broker.delay.delivery",
    "qbus.broker.delay.fold",
    "qbus.broker.delay.held",
    "qbus.broker.delay.intake",
    "qbus.broker.delay.schedule",
    "qbus.broker.disque.adding",
    "qbus.broker.disque.calls",
    "qbus.broker.disque.commands",
    "qbus.broker.disque.connection",
    "qbus.broker.disque.dispatch",
    "qbus.broker.disque.finding",
    "qbus.broker.disque.getting",
    "qbus.broker.disque.job_queue",
    "qbus.broker.disque.queues",
    "qbus.broker.disque.resp",
    "qbus.broker.disque.settling",
    "qbus.broker.disque.stream",
    "qbus.broker.group.committing",
    "qbus.broker.group.offset_machine",
    "qbus.broker.group.offset_records",
    "qbus.broker.internal_logs.batches",
    "qbus.broker.internal_logs.machine",
    "qbus.broker.internal_logs.shard",
    "qbus.broker.kafka.context",
    "qbus.broker.kafka.dispatch",
    "qbus.broker.kafka.fetch_reader",
    "qbus.broker.kafka.handlers.fetch",
    "qbus.broker.kafka.handlers.leaders",
    "qbus.broker.kafka.handlers.produce",
    "qbus.broker.kafka.lean",
    "qbus.broker.kafka.lean_answers",
    "qbus.broker.kafka.lean_commit",
    "qbus.broker.kafka.lean_transaction",
    "qbus.broker.kafka.produce_answers",
    "qbus.broker.kafka.replica_sessions",
    "qbus.broker.kafka.throttling",
    "qbus.broker.log.appender",
    "qbus.broker.log.config",
    "qbus.broker.log.controls",
    "qbus.broker.log.epochs",
    "qbus.broker.log.file_cache",
    "qbus.broker.log.flusher",
    "qbus.broker.log.following",
    "qbus.broker.log.health",
    "qbus.broker.log.indexes",
    "qbus.broker.log.log",
    "qbus.broker.log.mirroring",
    "qbus.broker.log.names",
    "qbus.broker.log.opening",
    "qbus.broker.log.producers",
    "qbus.broker.log.reader",
    "qbus.broker.log.removal",
    "qbus.broker.log.scan",
    "qbus.broker.log.segment",
    "qbus.broker.log.snapshots",
    "qbus.broker.log.state",
    "qbus.broker.log.transactions",
    "qbus.broker.log.verify",
    "qbus.broker.log.visible",
    "qbus.broker.net.connection",
    "qbus.broker.net.frames",
    "qbus.broker.net.memory_budget",
    "qbus.broker.net.peer",
    "qbus.broker.net.tls_transport",
    "qbus.broker.net.transport",
    "qbus.broker.partition.events",
    "qbus.broker.partition.flusher",
    "qbus.broker.partition.followers",
    "qbus.broker.partition.partition",
    "qbus.broker.partition.purgatory",
    "qbus.broker.partition.stable_storage",
    "qbus.broker.partition.truncation",
    "qbus.broker.partition.visibility",
    "qbus.broker.queues.alarm",
    "qbus.broker.queues.batches",
    "qbus.broker.queues.fold",
    "qbus.broker.queues.gate",
    "qbus.broker.queues.giving",
    "qbus.broker.queues.journal",
    "qbus.broker.queues.outcomes",
    "qbus.broker.queues.queue",
    "qbus.broker.queues.ranges",
    "qbus.broker.queues.service",
    "qbus.broker.queues.settlement",
    "qbus.broker.queues.source",
    "qbus.broker.queues.state",
    "qbus.broker.queues.taking",
    "qbus.broker.queues.waiters",
    "qbus.broker.queues.writer",
    "qbus.broker.quotas.client_quotas",
    "qbus.broker.quotas.meter",
    "qbus.broker.quotas.resolution",
    "qbus.broker.transaction.markers",
    "qbus.broker.turn_end",
    "qbus.clients.net.connection",
    "qbus.clients.net.in_flight",
    "qbus.clients.net.write_buffer",
    "qbus.clients.producer.accumulator",
    "qbus.clients.producer.batch_completer",
    "qbus.clients.producer.plain",
    "qbus.clients.producer.plan",
    "qbus.clients.producer.queue",
    "qbus.clients.producer.requests",
    "qbus.clients.producer.sender",
)
"""The compiled modules: whole hierarchies of classes, for a compiled class is no base of others."""

LIBRARY = "qbus_compiled"
"""The name that those of the shared libraries are made of."""

DIRECTORY = "_compiled"
STAMP = "sources"
"""In ``DIRECTORY``: size and time of change of each source, where sources may change."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - at every start


class _Finder:
    """Finds the compiled modules, before their sources are found."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self,
        name: str,
        _path: Sequence[str] | None = None,
        _target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """As of ``importlib.abc.MetaPathFinder``."""
        file = self._files.get(name)
        return None if file is None else spec_from_file_location(name, file)


def openers() -> dict[str, str]:
    """The library that has the function by which Python begins each module.

    Python names it by the last part of a module's name: those of one library have to differ.
    """
    counts: dict[str, int] = {}
    found = {}
    for module in MODULES:
        last = module.rpartition(".")[2]
        counts[last] = number = counts.get(last, 0) + 1
        found[module] = f"{LIBRARY}__{number}"
    return found


def source_of(module: str) -> str:
    """The path of a module's source, below the directory that holds the package."""
    return module.replace(".", "/") + ".py"


def stamp(root: str) -> str:
    """What the sources below ``root`` are: their sizes and times of change. Raises OSError."""
    lines = []
    for module in MODULES:
        found = os.stat(f"{root}/{source_of(module)}")  # noqa: PTH116 - at every start
        lines.append(f"{module} {found.st_size} {found.st_mtime_ns}\n")
    return "".join(lines)


def _choose() -> str:
    """Have the compiled modules found, if they are to be used; else why they are not."""
    if os.environ.get("QBUS_COMPILED") == "0":
        return "QBUS_COMPILED is 0"
    directory = f"{_PACKAGE}/{DIRECTORY}"
    suffix = EXTENSION_SUFFIXES[0]
    try:
        names = {name for name in os.listdir(directory) if name.endswith(suffix)}  # noqa: PTH208
    except FileNotFoundError:
        return "nothing is compiled here"
    if not _is_fresh(directory):
        return "sources have changed since they were compiled; make compile does it again"
    there = {name.removesuffix(suffix): f"{directory}/{name}" for name in names}
    all_code = f"{LIBRARY}__mypyc"
    wanted = {all_code: all_code, **openers()}
    if not there.keys() >= {*wanted.values()}:
        return "nothing is compiled for this Python"
    files = {module: there[library] for module, library in wanted.items()}
    sys.meta_path.insert(0, _Finder(files))
    return ""


def _is_fresh(directory: str) -> bool:
    try:
        with open(f"{directory}/{STAMP}", encoding="utf-8") as file:  # noqa: PTH123
            made_of = file.read()
    except FileNotFoundError:
        return True  # installed: nobody changes sources
    try:
        return made_of == stamp(os.path.dirname(_PACKAGE))  # noqa: PTH120
    except OSError:
        return False


WHY_NOT = _choose()
"""Why this process runs the sources; empty if it runs what is compiled."""
