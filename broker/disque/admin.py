"""Commands about the server, its clients and the cluster."""

import asyncio
import os
import platform
import re
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from qbus._version import __version__
from qbus.errors import ApiError
from qbus.jobs import GROUP

from ..turns import Pace, next_turn
from . import resp
from .calls import Call, Command, Handler
from .connection import Client, Connection, Reply
from .errors import CommandError, syntax_error, wrong_arguments
from .listener import DisqueListener
from .options import need_integer, need_timeout
from .resp import Encoded, Simple, Value
from .service import DisqueService

_NOT_ALLOWED: Final = "ERR {} is not allowed here: disque.admin.enable is false"
_HIDDEN: Final = "********"
_LONGEST_PATTERN: Final = 128
_LONGEST_NAME: Final = 1024  # CLIENT LIST lists those of all clients
_NAME: Final = re.compile(rb"[!-~]*")
_SETTLED_AT_ONCE: Final = 100
LONGEST_PAUSE_MS: Final = 60_000
"""Any client may pause all of them, but not for good."""

_FLAGS: Final = {
    "w": "write",
    "r": "readonly",
    "m": "denyoom",
    "a": "admin",
    "R": "random",
    "l": "loading",
    "M": "skip_monitor",
    "F": "fast",
}


class AdminCommands:
    """The commands that are not about jobs. ``known``: the whole table, once it is made."""

    def __init__(self, service: DisqueService) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self.known: Mapping[str, Command] = {}
        self.listener: DisqueListener | None = None
        self.processed: Callable[[], int] = lambda: 0
        self.paused_until = 0.0

    def table(self) -> list[Command]:
        """The commands, with Disque's numbers of words and flags."""
        return [
            Command("auth", -2, "rlF", self.auth),
            Command("ping", -1, "rF", self.ping),
            Command("info", -1, "rl", self.info),
            Command("shutdown", -1, "arl", self.shutdown),
            Command("debug", -2, "a", self.debug),
            Command("config", -2, "ar", self.config),
            Command("cluster", -2, "ar", self.cluster),
            Command("client", -2, "ar", self.client),
            Command("slowlog", -2, "r", self.slowlog),
            Command("time", 1, "rF", self.time),
            Command("command", 0, "rl", self.command),
            Command("latency", -2, "arl", self.latency),
            Command("hello", -1, "rF", self.hello),
            Command("qbus.leaves", 3, "ar", self.leaves),
            Command("loadjob", 2, "w", self.load_job),
            Command("bgrewriteaof", 1, "ar", self.rewrite),
        ]

    # Clients

    def auth(self, call: Call) -> Reply:
        """``AUTH password``, or ``AUTH user password``."""
        words = call.arguments
        if len(words) > 3:
            raise wrong_arguments("auth")
        return self._auth(call.client, words[1] if len(words) == 3 else None, words[-1])

    async def _auth(self, client: Client, user: bytes | None, password: bytes) -> bytes:
        await self._service.authentication.authenticate(client, user, password)
        return resp.OK

    def ping(self, call: Call) -> Reply:
        """``PING [text]``."""
        if len(call.arguments) > 2:
            raise wrong_arguments("ping")
        return resp.bulk(call.arguments[1]) if len(call.arguments) == 2 else resp.simple("PONG")

    def hello(self, call: Call) -> Reply:
        """``HELLO``: the nodes. ``HELLO 2|3 ...``: the handshake of newer Redis clients."""
        if len(call.arguments) > 1:
            return self._redis_hello(call)
        self._service.authentication.need(call.client)
        nodes: list[Value] = []
        for node in self._service.nodes.all():
            host, port = node.for_client(is_encrypted=call.client.is_encrypted)
            nodes.append([node.name, host, str(port), str(node.priority)])
        return resp.encode([1, self._service.nodes.name, *nodes])

    def _redis_hello(self, call: Call) -> Reply:
        version, words, position = call.arguments[1], call.arguments, 2
        if version not in {b"2", b"3"}:
            raise wrong_arguments("hello")
        credentials: tuple[bytes, bytes] | None = None
        name = call.client.name
        while position < len(words):
            word = words[position].lower()
            if word == b"auth" and position + 2 < len(words):
                credentials = words[position + 1], words[position + 2]
                position += 3
            elif word == b"setname" and position + 1 < len(words):
                name = _checked_name(words[position + 1])
                position += 2
            else:
                raise syntax_error()
        if credentials is not None:
            return self._hello_with_auth(call.client, version, name, credentials)
        return self._greet(call.client, version, name)

    async def _hello_with_auth(
        self, client: Client, version: bytes, name: bytes, credentials: tuple[bytes, bytes]
    ) -> bytes:
        await self._service.authentication.authenticate(client, *credentials)
        return self._greet(client, version, name)

    def _greet(self, client: Client, version: bytes, name: bytes) -> bytes:
        self._service.authentication.need(client)
        client.name = name
        pairs: list[Value] = [
            *("server", "disque", "version", __version__, "proto", int(version)),
            *("id", client.id, "mode", "cluster", "role", "master", "modules", []),
        ]
        if version == b"2":
            return resp.encode(pairs)
        return b"%%%d\r\n%b" % (len(pairs) // 2, b"".join(map(resp.encode, pairs)))

    def client(self, call: Call) -> Reply:
        """``CLIENT LIST|KILL|GETNAME|SETNAME|SETINFO|PAUSE|REPLY ...``."""
        what, count = call.arguments[1].lower(), len(call.arguments)
        answers: dict[tuple[bytes, int], Handler] = {
            (b"list", 2): self._list,
            (b"getname", 2): self._name,
            (b"setname", 3): self._set_name,
            (b"setinfo", 4): lambda _: resp.OK,
            (b"pause", 3): self._pause,
            (b"reply", 3): self._reply,
        }
        answer = self._kill if what == b"kill" else answers.get((what, count))
        if answer is None:
            raise CommandError(
                "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME"
                " connection-name)"
            )
        return answer(call)

    def _list(self, call: Call) -> Reply:  # noqa: ARG002 - it has no arguments
        now = self._loop.time()
        return resp.bulk("".join(f"{_describe(one, now)}\n" for one in self._all()))

    def _name(self, call: Call) -> Reply:
        return resp.bulk(call.client.name) if call.client.name else resp.NULL

    def _all(self) -> Sequence[Connection]:
        return self.listener.clients() if self.listener is not None else ()

    def _set_name(self, call: Call) -> Reply:
        call.client.name = _checked_name(call.arguments[2])
        return resp.OK

    def _reply(self, call: Call) -> Reply:
        what, client = call.arguments[2].lower(), call.client
        if what == b"on":
            client.is_muted = False
            return resp.OK
        if what == b"off":
            client.is_muted = True
            return b""
        if what == b"skip":
            client.skips = 2
            return b""
        raise syntax_error()

    def _kill(self, call: Call) -> Reply:
        words = call.arguments
        if len(words) == 3:
            killed = self._kill_all(call, {b"addr": words[2]}, skips_me=False)
            if not killed:
                raise CommandError("ERR No such client")
            return resp.OK
        if len(words) < 3 or len(words) % 2:
            raise syntax_error()
        wanted: dict[bytes, bytes] = {}
        for name, value in zip(words[2::2], words[3::2], strict=True):
            wanted[_filter(name.lower(), value)] = value
        skips_me = wanted.get(b"skipme", b"yes").lower() == b"yes"
        return resp.integer(self._kill_all(call, wanted, skips_me=skips_me))

    def _kill_all(self, call: Call, wanted: Mapping[bytes, bytes], *, skips_me: bool) -> int:
        killed = 0
        for connection in self._all():
            client = connection.client
            if b"id" in wanted and str(client.id).encode() != wanted[b"id"]:
                continue
            if b"addr" in wanted and client.address.encode() != wanted[b"addr"]:
                continue
            if client is call.client:
                if skips_me:
                    continue
                client.is_over = True
            else:
                connection.close("another client asked for it")
            killed += 1
        return killed

    def _pause(self, call: Call) -> Reply:
        timeout_ms = min(need_timeout(call.arguments[2]), LONGEST_PAUSE_MS)
        end = self._loop.time() + timeout_ms / 1000
        if end > self.paused_until:
            self.paused_until = end
            self._loop.call_at(end, self._end_pause)
        return resp.OK

    @property
    def is_paused(self) -> bool:
        """Whether all clients are paused."""
        return self.paused_until > 0 and self._loop.time() < self.paused_until

    def _end_pause(self) -> None:
        for connection in self._all():
            connection.go_on()

    # The server

    def time(self, call: Call) -> Reply:  # noqa: ARG002 - it has no arguments
        """``TIME``: seconds and microseconds."""
        microseconds = self._service.clock.time_ms() * 1000
        return resp.encode([str(microseconds // 1_000_000), str(microseconds % 1_000_000)])

    def command(self, call: Call) -> Reply:
        """``COMMAND [COUNT | INFO name ...]``: the table."""
        words = call.arguments
        what = words[1].lower() if len(words) > 1 else b""
        if len(words) == 1:
            return resp.encode([_row(row) for row in self.known.values()])
        if what == b"info":
            rows = [self.known.get(word.decode("latin-1").lower()) for word in words[2:]]
            return resp.encode([None if row is None else _row(row) for row in rows])
        if what == b"count" and len(words) == 2:
            return resp.integer(len(self.known))
        raise CommandError("ERR Unknown subcommand or wrong number of arguments.")

    def info(self, call: Call) -> Reply:
        """``INFO [section]``."""
        if len(call.arguments) > 2:
            raise syntax_error()
        section = call.arguments[1].lower().decode("latin-1") if len(call.arguments) > 1 else ""
        parts = []
        for name, fields in self._sections().items():
            if section in {"", "default", "all", name.lower()}:
                lines = "".join(f"{key}:{value}\r\n" for key, value in fields.items())
                parts.append(f"# {name}\r\n{lines}")
        return resp.bulk("\r\n".join(parts))

    def _sections(self) -> dict[str, dict[str, object]]:
        service, listener = self._service, self.listener
        uptime = int(self._loop.time() - self._started)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        queues = service.local_queues()
        jobs = sum(one.length for one in queues)
        return {
            "Server": {
                "disque_version": __version__,
                "qbus_version": __version__,
                "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                "arch_bits": 64,
                "process_id": os.getpid(),
                "run_id": service.nodes.name,
                "tcp_port": service.address.port,
                "uptime_in_seconds": uptime,
                "uptime_in_days": uptime // 86_400,
            },
            "Clients": {
                "connected_clients": 0 if listener is None else listener.connections,
                "client_biggest_input_buf": max((one.unread for one in self._all()), default=0),
                "blocked_clients": sum(one.client.is_blocked for one in self._all()),
            },
            "Memory": {
                "used_memory_rss": _resident_bytes(),
                "used_memory_peak": usage.ru_maxrss * 1024,
            },
            "Jobs": {"registered_jobs": jobs},
            "Queues": {"registered_queues": len(queues)},
            "Persistence": {
                "loading": 0,
                "aof_enabled": 1,
                "aof_state": "on",
                "aof_last_write_status": "ok",
            },
            "Stats": {
                "total_connections_received": 0 if listener is None else listener.accepted,
                "total_commands_processed": self.processed(),
                "total_net_input_bytes": 0 if listener is None else listener.received_bytes,
                "total_net_output_bytes": 0 if listener is None else listener.sent_bytes,
                "rejected_connections": 0 if listener is None else listener.refused,
            },
            "CPU": {
                "used_cpu_sys": f"{usage.ru_stime:.2f}",
                "used_cpu_user": f"{usage.ru_utime:.2f}",
            },
        }

    def config(self, call: Call) -> Reply:
        """``CONFIG GET pattern | SET name value | RESETSTAT | REWRITE``."""
        words = call.arguments
        what, count = words[1].lower(), len(words)
        if what not in {b"get", b"set", b"resetstat", b"rewrite"}:
            raise CommandError("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
        if count != {b"get": 3, b"set": 4}.get(what, 2):
            name = words[1].decode("latin-1")
            raise CommandError(f"ERR Wrong number of arguments for CONFIG {name}")
        if what == b"get":
            return self._get_config(words[2])
        if what == b"set":
            return self._set_config(words[2], words[3])
        if what == b"rewrite":
            raise CommandError("ERR The server is running without a config file")
        return resp.OK

    def _settings(self) -> dict[str, str | bytes]:
        config, listener = self._service.config, self.listener
        limits = None if listener is None else listener.limits
        return {
            "requirepass": _HIDDEN if self._service.authentication.password else "",
            "maxmemory": "0",
            "timeout": "0" if limits is None else str(int(limits.idle_s)),
            "port": str(self._service.address.port),
            "maxclients": str(config.disque_max_clients if limits is None else limits.max_clients),
            "tcp-keepalive": "yes",
            "daemonize": "no",
            "maxmemory-policy": "noeviction",
            "appendfsync": "always" if config.durability == "fsync" else "everysec",
            "appendonly": "yes",
            "dir": config.log_dirs[0] if config.log_dirs else "",
            "bind": "" if listener is None else listener.address.host,
        }

    def _get_config(self, pattern: bytes) -> Reply:
        if len(pattern) > _LONGEST_PATTERN:  # a megabyte of it takes a minute to compile
            raise CommandError(f"ERR a pattern has at most {_LONGEST_PATTERN} bytes")
        wanted = pattern.decode("utf-8", "replace")
        pairs: list[Value] = []
        for name, value in self._settings().items():
            if fnmatchcase(name, wanted):
                pairs += [name, value]
        return resp.encode(pairs)

    def _set_config(self, name: bytes, value: bytes) -> Reply:
        key, text = name.lower(), value[:128].decode("utf-8", "backslashreplace")
        limits = None if self.listener is None else self.listener.limits
        if key == b"requirepass":
            self._service.authentication.password = value
            return resp.OK
        if self.listener is not None and limits is not None and key in {b"timeout", b"maxclients"}:
            if not (value.isdigit() and len(value) < 10) or (
                key == b"maxclients" and int(value) < 1
            ):
                shown = name.decode("latin-1")
                raise CommandError(f"ERR Invalid argument '{text}' for CONFIG SET '{shown}'")
            if key == b"timeout":
                self.listener.limits = limits._replace(idle_s=float(value))
            else:
                self.listener.limits = limits._replace(max_clients=int(value))
            return resp.OK
        shown = name[:128].decode("utf-8", "backslashreplace")
        raise CommandError(f"ERR Unsupported CONFIG parameter: {shown}")

    def slowlog(self, call: Call) -> Reply:
        """``SLOWLOG GET|LEN|RESET``: there is none."""
        what, count = call.arguments[1].lower(), len(call.arguments)
        if what == b"get" and count in {2, 3}:
            if count == 3:
                need_integer(call.arguments[2])
            return resp.EMPTY_ARRAY
        if what == b"len" and count == 2:
            return resp.integer(0)
        if what == b"reset" and count == 2:
            return resp.OK
        raise CommandError(
            "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
        )

    def latency(self, call: Call) -> Reply:
        """``LATENCY LATEST|HISTORY|RESET ...``: nothing is noted."""
        what, count = call.arguments[1].lower(), len(call.arguments)
        if (what == b"latest" and count == 2) or (what == b"history" and count == 3):
            return resp.EMPTY_ARRAY
        if what == b"reset":
            return resp.integer(0)
        raise syntax_error()

    def load_job(self, call: Call) -> Reply:  # noqa: ARG002 - it is always refused
        """``LOADJOB``: only of Disque's own files."""
        raise CommandError("ERR LOADJOB is a special command only processed from AOF")

    def rewrite(self, call: Call) -> Reply:  # noqa: ARG002 - there is nothing to do
        """``BGREWRITEAOF``: the log needs none."""
        return resp.simple("Background append only file rewriting started")

    def shutdown(self, call: Call) -> Reply:
        """``SHUTDOWN [REWRITE-AOF]``: stop the broker in order."""
        words = call.arguments
        if len(words) > 2 or (len(words) == 2 and words[1].lower() != b"rewrite-aof"):
            raise syntax_error()
        self._need_admin("SHUTDOWN")
        call.client.is_over = True
        os.kill(os.getpid(), signal.SIGTERM)
        return b""

    def debug(self, call: Call) -> Reply:
        """``DEBUG FLUSHALL | SLEEP seconds | ERROR text``."""
        words = call.arguments
        what, count = words[1].lower(), len(words)
        if what == b"flushall":
            self._need_admin("DEBUG FLUSHALL")
            return self._flush()
        if what == b"sleep" and count == 3:
            self._need_admin("DEBUG SLEEP")
            return self._sleep(words[2])
        if what == b"error" and count == 3:
            return resp.error(words[2].decode("utf-8", "replace"))
        name = words[1][:128].decode("utf-8", "backslashreplace")
        raise CommandError(
            f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{name}'"
        )

    def _need_admin(self, what: str) -> None:
        if not self._service.config.disque_admin_enable:
            raise CommandError(_NOT_ALLOWED.format(what))

    async def _flush(self) -> bytes:
        """Settle all jobs of the partitions that are led here."""
        for queue in self._service.local_queues():
            for part in queue.parts:
                pace = Pace(_SETTLED_AT_ONCE)
                known = self._service.share_queues.describe(part.partition, GROUP)
                start = 0 if known is None else known.start_offset
                for offset in range(start, part.partition.high_watermark):
                    if pace.is_over():
                        await next_turn()
                    try:
                        await part.queue.settle(offset)
                    except ApiError as error:
                        raise CommandError(f"ERR not all is flushed: {error}") from error
            queue.was_flushed()
        return resp.OK

    async def _sleep(self, seconds: bytes) -> bytes:
        try:
            await asyncio.sleep(min(max(float(seconds), 0.0), 3600.0))
        except ValueError:
            return resp.OK
        return resp.OK

    # The cluster

    def cluster(self, call: Call) -> Reply:
        """``CLUSTER NODES|MYID|INFO|MEET|FORGET|RESET|LEAVING|SAVECONFIG ...``."""
        what, count = call.arguments[1].lower(), len(call.arguments)
        nodes = self._service.nodes
        answers: dict[tuple[bytes, int], Handler] = {
            (b"nodes", 2): self._nodes,
            (b"myid", 2): lambda _: resp.bulk(nodes.name),
            (b"info", 2): lambda _: resp.bulk(self._cluster_info()),
            (b"saveconfig", 2): lambda _: resp.OK,
            (b"meet", 4): self._meet,
            (b"forget", 3): self._forget,
            (b"reset", 2): self._reset,
            (b"reset", 3): self._reset,
            (b"leaving", 2): self._leaving,
            (b"leaving", 3): self._leaving,
        }
        answer = answers.get((what, count))
        if answer is None:
            raise CommandError("ERR Wrong CLUSTER subcommand or number of arguments")
        return answer(call)

    def _reset(self, call: Call) -> Reply:
        words = call.arguments
        if len(words) == 3 and words[2].lower() not in {b"hard", b"soft"}:
            raise syntax_error()
        raise CommandError("ERR a node belongs to its cluster for good")

    def _nodes(self, call: Call) -> Reply:
        lines = []
        for node in self._service.nodes.all():
            address = node.for_client(is_encrypted=call.client.is_encrypted)
            flags = [*(["myself"] * node.is_myself), *(["leaving"] * node.is_leaving)]
            at = f"{address.host}:{address.port}"
            lines.append(f"{node.name} {at} {','.join(flags) or 'noflags'} 0 0 connected\n")
        return resp.bulk("".join(lines))

    def _cluster_info(self) -> str:
        nodes = self._service.nodes.all()
        reachable = sum(not node.is_leaving for node in nodes[1:])
        fields = {
            "cluster_state": "ok",
            "cluster_known_nodes": len(nodes),
            "cluster_reachable_nodes": reachable,
            "cluster_size": len(nodes),
            "cluster_stats_messages_sent": 0,
            "cluster_stats_messages_received": 0,
        }
        return "".join(f"{name}:{value}\r\n" for name, value in fields.items())

    def _meet(self, call: Call) -> Reply:
        host, port = call.arguments[2:]
        text = f"{host.decode('latin-1')}:{port.decode('latin-1')}"
        if not (port.isdigit() and len(port) < 10):
            shown = port.decode("latin-1")
            raise CommandError(f"ERR Invalid TCP port specified: {shown}")
        if not 0 < int(port) < 1 << 16:
            raise CommandError(f"ERR Invalid node address specified: {text}")
        known = self._service.nodes.all()
        if any(text in {str(one.address), str(one.tls_address)} for one in known):
            return resp.OK
        raise CommandError(f"ERR {text} is no node of this cluster: nodes meet in their metadata")

    def _forget(self, call: Call) -> Reply:
        name = call.arguments[2]
        text = name.decode("latin-1")
        if len(name) != 40:
            raise CommandError("ERR Invalid node identifier")
        for node in self._service.nodes.all():
            if node.name == text:
                if node.is_myself:
                    raise CommandError("ERR I tried hard but I can't forget myself...")
                raise CommandError(f"ERR node {text} lives: it is forgotten when it stops")
        raise CommandError(f"ERR Unknown node {text}")

    def _leaving(self, call: Call) -> Reply:
        nodes = self._service.nodes
        if len(call.arguments) == 2:
            return resp.simple("yes" if nodes.is_leaving else "no")
        what = call.arguments[2].lower()
        if what not in {b"yes", b"no"}:
            raise CommandError("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
        if what == b"yes":
            nodes.leaving.add(nodes.name)
        else:
            nodes.leaving.discard(nodes.name)
        return self._tell_leaving(what)

    async def _tell_leaving(self, what: bytes) -> bytes:
        await self._service.tell_others("QBUS.LEAVES", self._service.nodes.name, what)
        return resp.OK

    def leaves(self, call: Call) -> Reply:
        """``QBUS.LEAVES node yes|no``: another node is about to leave, or not any more."""
        name = call.arguments[1].decode("latin-1")
        if name not in {node.name for node in self._service.nodes.all()}:
            raise CommandError("ERR no such node")
        if call.arguments[2] == b"yes":
            self._service.nodes.leaving.add(name)
        else:
            self._service.nodes.leaving.discard(name)
        return resp.OK


def _checked_name(name: bytes) -> bytes:
    """A client's name that breaks no line of CLIENT LIST. Raises CommandError."""
    if len(name) > _LONGEST_NAME:
        raise CommandError(f"ERR a client's name has at most {_LONGEST_NAME} bytes")
    if _NAME.fullmatch(name) is None:
        raise CommandError(
            "ERR Client names cannot contain spaces, newlines or special characters."
        )
    return name


def _filter(name: bytes, value: bytes) -> bytes:
    """The name of a condition of CLIENT KILL whose value is one. Raises CommandError."""
    if name == b"id":
        need_integer(value)
    elif name == b"skipme":
        if value.lower() not in {b"yes", b"no"}:
            raise syntax_error()
    elif name == b"type":
        if value.lower() != b"normal":
            text = value[:64].decode("utf-8", "backslashreplace")
            raise CommandError(f"ERR Unknown client type '{text}'")
    elif name != b"addr":
        raise syntax_error()
    return name


@cache
def _row(row: Command) -> Value:
    flags: list[Value] = [
        Encoded(resp.encode(Simple(text))) for flag, text in _FLAGS.items() if flag in row.flags
    ]
    return Encoded(resp.encode([row.name, row.arity, flags, 0, 0, 0]))


def _describe(connection: Connection, now: float) -> str:
    client = connection.client
    name = client.name.decode("latin-1")
    return (
        f"id={client.id} addr={client.address} fd=0 name={name}"
        f" age={int(now - client.connected_at)} idle={int(now - client.last_active)}"
        f" flags={'b' if client.is_blocked else 'N'} qbuf={connection.unread} qbuf-free=0"
        f" obl=0 oll=0 omem=0 events=r cmd={client.command}"
    )


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a pseudo file
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
