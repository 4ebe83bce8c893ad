"""What Disque answers: scripts of commands, each with its reply, for any server.

In a command ``{q}`` and ``{q2}`` are queues of the script's own, ``{0}``, ``{1}`` the ids of the
jobs that it added, in that order. In a reply ``"{0}"`` is such an id, and a callable says whether
it is right.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.resp_client import ReplyError


class Step(NamedTuple):
    """One command and its reply; ``after_s``: so long after the one before, in seconds."""

    command: str
    reply: Any
    after_s: float = 0.0


def is_id(reply: object) -> bool:
    """Whether a reply is a job's id."""
    return isinstance(reply, str) and len(reply) == 40 and reply.startswith("D-")


def fields(**wanted: Any) -> Callable[[Any], bool]:
    """Whether a reply of pairs has these; a name's underscores stand for dashes."""

    def has(reply: Any) -> bool:
        pairs = dict(zip(reply[::2], reply[1::2], strict=True))
        return all(
            value(pairs[name.replace("_", "-")])
            if callable(value)
            else pairs[name.replace("_", "-")] == value
            for name, value in wanted.items()
        )

    return has


def about(number: int, most: int) -> Callable[[Any], bool]:
    """Whether a reply is a number, and not far from this one."""
    return lambda reply: isinstance(reply, int) and number - most <= reply <= number


def error(text: str) -> ReplyError:
    """An error reply."""
    return ReplyError(text)


SYNTAX = error("ERR syntax error")
NOT_A_NUMBER = error("ERR value is not an integer or out of range")
BAD_ID = error("BADID Invalid Job ID format.")
NO_JOB = error("NOJOB Job not known in the context of this node.")
NOBODY = "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"


def wrong(name: str) -> ReplyError:
    """A wrong number of arguments."""
    return error(f"ERR wrong number of arguments for '{name}' command")


def add(options: str = "", body: str = "body") -> Step:
    """A job is added to the first queue."""
    return Step(f"ADDJOB {{q}} {body} 0 {options}", is_id)


def taken(number: int, body: str = "body", queue: str = "{q}") -> list[str]:
    """One job as GETJOB shows it."""
    return [queue, f"{{{number}}}", body]


def counted(number: int, nacks: int, again: int) -> list[Any]:
    """One job as GETJOB WITHCOUNTERS shows it."""
    return [*taken(number), "nacks", nacks, "additional-deliveries", again]


GET = "GETJOB NOHANG FROM {q}"
COUNTED = "GETJOB NOHANG WITHCOUNTERS FROM {q}"

TABLE: dict[str, list[Step]] = {
    # ADDJOB
    "a job is added, taken once, and acknowledged once": [
        add(),
        Step(GET, [taken(0)]),
        Step(GET, None),
        Step("ACKJOB {0}", 1),
        Step("ACKJOB {0}", 0),
        Step("SHOW {0}", None),
        Step(GET, None),
    ],
    "addjob takes every option": [
        add("REPLICATE 1 DELAY 0 RETRY 5 TTL 100 MAXLEN 10 ASYNC"),
        add("replicate 1 delay 0 retry 5 ttl 100 maxlen 10 async"),
        Step("GETJOB TIMEOUT 9000 FROM {q}", [taken(0)]),
        Step("GETJOB TIMEOUT 9000 FROM {q}", [taken(1)]),
    ],
    "addjob needs three arguments": [
        Step("ADDJOB {q} body", wrong("addjob")),
        Step("ADDJOB", wrong("addjob")),
    ],
    "addjob refuses a time-out that is none": [
        Step("ADDJOB {q} body x", error("ERR timeout is not an integer or out of range")),
        Step("ADDJOB {q} body 1.5", error("ERR timeout is not an integer or out of range")),
        Step("ADDJOB {q} body -1", error("ERR timeout is negative")),
    ],
    "addjob refuses options that it does not know, or without a value": [
        Step("ADDJOB {q} body 0 FOO", SYNTAX),
        Step("ADDJOB {q} body 0 FOO 1", SYNTAX),
        Step("ADDJOB {q} body 0 TTL", SYNTAX),
        Step("ADDJOB {q} body 0 ASYNC RETRY", SYNTAX),
    ],
    "addjob refuses values out of range": [
        Step("ADDJOB {q} body 0 REPLICATE 0", error("ERR REPLICATE must be between 1 and 65535")),
        Step(
            "ADDJOB {q} body 0 REPLICATE 65536", error("ERR REPLICATE must be between 1 and 65535")
        ),
        Step("ADDJOB {q} body 0 REPLICATE x", error("ERR REPLICATE must be between 1 and 65535")),
        Step("ADDJOB {q} body 0 TTL 0", error("ERR TTL must be a number > 0")),
        Step("ADDJOB {q} body 0 TTL x", error("ERR TTL must be a number > 0")),
        Step("ADDJOB {q} body 0 RETRY -1", error("ERR RETRY time must be a non negative number")),
        Step("ADDJOB {q} body 0 RETRY x", error("ERR RETRY time must be a non negative number")),
        Step("ADDJOB {q} body 0 DELAY -1", error("ERR DELAY time must be a non negative number")),
        Step("ADDJOB {q} body 0 MAXLEN 0", error("ERR MAXLEN must be a positive number")),
        Step("ADDJOB {q} body 0 MAXLEN -2", error("ERR MAXLEN must be a positive number")),
        Step("QLEN {q}", 0),
    ],
    "addjob refuses what contradicts itself": [
        Step(
            "ADDJOB {q} body 0 DELAY 5 TTL 5",
            error(
                "ERR The specified DELAY is greater than TTL. Job refused since would never be"
                " delivered"
            ),
        ),
        Step(
            "ADDJOB {q} body 0 RETRY 0 REPLICATE 2",
            error(
                "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once"
                " delivery)"
            ),
        ),
    ],
    "addjob refuses more replicas than there are nodes": [
        Step(
            "ADDJOB {q} body 0 REPLICATE 2",
            error("NOREPL Not enough reachable nodes for the requested replication level"),
        ),
    ],
    "addjob refuses what is too much for MAXLEN": [
        add("MAXLEN 1"),
        Step(
            "ADDJOB {q} body 0 MAXLEN 1",
            error("MAXLEN Queue is already longer than the specified MAXLEN count"),
        ),
        add("MAXLEN 2"),
    ],
    "retry follows the time to live where it is not given": [
        add(),
        Step("SHOW {0}", fields(retry=300, ttl=about(86_400, 2))),
        add("TTL 100"),
        Step("SHOW {1}", fields(retry=10, ttl=about(100, 2))),
        add("TTL 5"),
        Step("SHOW {2}", fields(retry=1)),
        add("TTL 5 RETRY 4"),
        Step("SHOW {3}", fields(retry=4)),
    ],
    "a body may be empty": [
        add(body='" "'),
        Step(GET, [taken(0, " ")]),
    ],
    "a job that lived too long is gone": [
        add("TTL 1"),
        Step(GET, None, after_s=2.5),
        Step("SHOW {0}", None),
        Step("ACKJOB {0}", 0),
    ],
    # DELAY
    "a delayed job is not there before its time": [
        add("DELAY 2"),
        Step("QLEN {q}", 0),
        Step(GET, None),
        Step("SHOW {0}", fields(id="{0}", state="active", delay=2, queue="{q}", body="body")),
        Step("GETJOB TIMEOUT 9000 FROM {q}", [taken(0)], after_s=0.5),
        Step("SHOW {0}", fields(id="{0}", state="active", delay=2)),
        Step("ACKJOB {0}", 1),
        Step("ACKJOB {0}", 0),
    ],
    "a delayed job is acknowledged before its time": [
        add("DELAY 1"),
        Step("ACKJOB {0}", 1),
        Step(GET, None, after_s=2.0),
    ],
    "a delayed job is enqueued before its time": [
        add("DELAY 60"),
        Step("ENQUEUE {0}", 1),
        Step("GETJOB TIMEOUT 3000 FROM {q}", [taken(0)]),
    ],
    # RETRY
    "a job comes again after its retry time": [
        add("RETRY 1"),
        Step(COUNTED, [counted(0, 0, 0)]),
        Step(COUNTED, None),
        Step("GETJOB TIMEOUT 9000 WITHCOUNTERS FROM {q}", [counted(0, 0, 1)]),
    ],
    "a job with RETRY 0 never comes again": [
        add("RETRY 0"),
        Step(COUNTED, [counted(0, 0, 0)]),
        Step("NACK {0}", 0),
        Step("ENQUEUE {0}", 0),
        Step(GET, None, after_s=1.5),
    ],
    # GETJOB
    "getjob refuses what it does not understand": [
        Step("GETJOB", wrong("getjob")),
        Step("GETJOB FROM", SYNTAX),
        Step("GETJOB {q}", SYNTAX),
        Step("GETJOB NOHANG", SYNTAX),
        Step("GETJOB NOHANG FROM", SYNTAX),
        Step("GETJOB TIMEOUT FROM {q}", error("ERR timeout is not an integer or out of range")),
        Step("GETJOB TIMEOUT -1 FROM {q}", error("ERR timeout is negative")),
        Step("GETJOB COUNT 0 FROM {q}", error("ERR COUNT must be a number greater than zero")),
        Step("GETJOB COUNT x FROM {q}", error("ERR COUNT must be a number greater than zero")),
        Step("GETJOB COUNT", SYNTAX),
        Step("GETJOB FOO FROM {q}", SYNTAX),
    ],
    "getjob waits as long as it is told": [
        Step("GETJOB TIMEOUT 300 FROM {q}", None),
        Step("GETJOB TIMEOUT 300 NOHANG FROM {q}", None),
    ],
    "getjob takes several, from left to right in turn": [
        add(body="a1"),
        add(body="a2"),
        Step("ADDJOB {q2} b1 0", is_id),
        Step("ADDJOB {q2} b2 0", is_id),
        Step(
            "GETJOB COUNT 3 FROM {q} {q2}",
            [taken(0, "a1"), taken(2, "b1", "{q2}"), taken(1, "a2")],
        ),
        Step("GETJOB COUNT 3 FROM {q} {q2}", [taken(3, "b2", "{q2}")]),
    ],
    "getjob gives the oldest first": [
        *(add(body=str(number)) for number in range(4)),
        Step("GETJOB COUNT 4 FROM {q}", [taken(number, str(number)) for number in range(4)]),
    ],
    # NACK, ENQUEUE, DEQUEUE
    "a nack is counted, and the job comes again": [
        add(),
        Step(COUNTED, [counted(0, 0, 0)]),
        Step("NACK {0}", 1),
        Step("NACK {0}", 0),
        Step(COUNTED, [counted(0, 1, 0)]),
        Step("NACK {0}", 1),
        Step(COUNTED, [counted(0, 2, 0)], after_s=0.3),
    ],
    "what is enqueued again is counted apart from nacks": [
        add(),
        Step(COUNTED, [counted(0, 0, 0)]),
        Step("ENQUEUE {0}", 1),
        Step("ENQUEUE {0}", 0),
        Step(COUNTED, [counted(0, 0, 1)]),
    ],
    "what is dequeued is not given out until it is enqueued": [
        add(),
        Step("DEQUEUE {0}", 1),
        Step("DEQUEUE {0}", 0),
        Step("QLEN {q}", 0),
        Step(GET, None),
        Step("SHOW {0}", fields(state="active")),
        Step("ENQUEUE {0}", 1),
        Step("QLEN {q}", 1),
        Step(GET, [taken(0)]),
        Step("DEQUEUE {0}", 0),
    ],
    "what is done is neither enqueued nor nacked": [
        add(),
        Step("ACKJOB {0}", 1),
        Step("ENQUEUE {0}", 0),
        Step("NACK {0}", 0),
        Step("DEQUEUE {0}", 0),
    ],
    # Ids
    "ids must be formed as such, all of them": [
        *(
            Step(f"{command} x", BAD_ID)
            for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE")
        ),
        Step("SHOW x", BAD_ID),
        Step("WORKING x", BAD_ID),
        add(),
        Step("ACKJOB {0} x", BAD_ID),
        Step(GET, [taken(0)]),
    ],
    "ids that are unknown count for nothing": [
        *(
            Step(f"{command} {NOBODY}", 0)
            for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE")
        ),
        Step(f"SHOW {NOBODY}", None),
        Step(f"WORKING {NOBODY}", NO_JOB),
    ],
    "without ids there is nothing to do": [
        Step(command, 0)
        for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE")
    ],
    "several ids are done in one command": [
        add(),
        add(),
        add(),
        Step("ACKJOB {0} {1} " + NOBODY, 2),
        Step("FASTACK {2} {0}", 1),
        Step("QLEN {q}", 0),
    ],
    "a job that waits is acknowledged, too": [add(), Step("ACKJOB {0}", 1), Step(GET, None)],
    "fastack and deljob finish a job": [
        add(),
        Step(GET, [taken(0)]),
        Step("FASTACK {0}", 1),
        Step("FASTACK {0}", 0),
        add(),
        Step("DELJOB {1}", 1),
        Step("DELJOB {1}", 0),
        Step(GET, None),
    ],
    # WORKING
    "working says for how long": [
        add("RETRY 40"),
        Step(GET, [taken(0)]),
        Step("WORKING {0}", 40),
        Step("WORKING", wrong("working")),
        Step("WORKING {0} {0}", wrong("working")),
    ],
    "working postpones the next delivery": [
        add("RETRY 2"),
        Step(GET, [taken(0)]),
        Step("WORKING {0}", 2, after_s=1.2),
        Step(GET, None, after_s=1.2),
        Step("GETJOB TIMEOUT 9000 FROM {q}", [taken(0)]),
    ],
    "working takes what waits out of the queue": [
        add("RETRY 5"),
        Step("WORKING {0}", 5),
        Step("QLEN {q}", 0),
        Step(GET, None),
    ],
    "working is refused after half of the time to live": [
        add("TTL 4 RETRY 3"),
        Step(GET, [taken(0)]),
        Step(
            "WORKING {0}",
            error(
                "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the"
                " next delivery."
            ),
            after_s=2.4,
        ),
    ],
    # SHOW
    "show describes a job": [
        add("RETRY 7 TTL 50"),
        Step(
            "SHOW {0}",
            fields(
                id="{0}",
                queue="{q}",
                state="queued",
                repl=1,
                ttl=about(50, 2),
                ctime=lambda one: one > 10**18,
                delay=0,
                retry=7,
                nacks=0,
                additional_deliveries=0,
                nodes_delivered=lambda one: len(one) == 1 and len(one[0]) == 40,
                nodes_confirmed=[],
                body="body",
            ),
        ),
        Step(GET, [taken(0)]),
        Step("SHOW {0}", fields(state="active", next_requeue_within=about(7500, 2500))),
        Step("NACK {0}", 1),
        Step("SHOW {0}", fields(state="queued", nacks=1)),
        Step("SHOW", wrong("show")),
    ],
    # Queues
    "qlen counts what waits": [
        Step("QLEN {q}", 0),
        add(),
        add(),
        Step("QLEN {q}", 2),
        Step(GET, [taken(0)]),
        Step("QLEN {q}", 1),
        Step("QLEN", wrong("qlen")),
        Step("QLEN {q} {q}", wrong("qlen")),
    ],
    "qpeek shows what waits, and leaves it": [
        Step("QPEEK {q} 3", []),
        *(add(body=str(number)) for number in range(4)),
        Step("QPEEK {q} 2", [taken(0, "0"), taken(1, "1")]),
        Step("QPEEK {q} -2", [taken(3, "3"), taken(2, "2")]),
        Step("QPEEK {q} 9", [taken(number, str(number)) for number in range(4)]),
        Step("QPEEK {q} 0", []),
        Step(GET, [taken(0, "0")]),
        Step("QPEEK {q} 1", [taken(1, "1")]),
        Step("QPEEK {q} -9", [taken(number, str(number)) for number in (3, 2, 1)]),
        Step("QPEEK {q} x", NOT_A_NUMBER),
        Step("QPEEK {q}", wrong("qpeek")),
    ],
    "qstat describes a queue": [
        Step("QSTAT {q}", None),
        add(),
        add(),
        Step(GET, [taken(0)]),
        Step(
            "QSTAT {q}",
            fields(
                name="{q}",
                len=1,
                age=about(1, 1),
                idle=about(1, 1),
                blocked=0,
                import_from=[],
                import_rate=0,
                jobs_in=2,
                jobs_out=1,
                pause="none",
            ),
        ),
        Step("QSTAT", wrong("qstat")),
    ],
    "qscan lists queues": [
        add(),
        Step("QSCAN BUSYLOOP", lambda reply: reply[0] == "0" and "{q}" in reply[1]),
        Step("QSCAN 0 COUNT 100000", lambda reply: "{q}" in reply[1]),
        Step("QSCAN COUNT 100000 MINLEN 1 MAXLEN 1", lambda reply: "{q}" in reply[1]),
        Step("QSCAN COUNT 100000 MINLEN 2", lambda reply: "{q}" not in reply[1]),
        Step("QSCAN COUNT 100000 MAXLEN 0", lambda reply: "{q}" not in reply[1]),
        Step("QSCAN COUNT 100000 IMPORTRATE 1", lambda reply: "{q}" not in reply[1]),
        Step("QSCAN x", error("ERR invalid cursor or option name")),
        Step("QSCAN 0 1", SYNTAX),
        Step("QSCAN COUNT x", NOT_A_NUMBER),
        Step("QSCAN COUNT", error("ERR invalid cursor or option name")),
        Step("QSCAN MINLEN x", NOT_A_NUMBER),
    ],
    "jscan lists jobs": [
        add(),
        add(),
        Step(GET, [taken(0)]),
        Step("JSCAN BUSYLOOP QUEUE {q}", lambda reply: set(reply[1]) == {"{0}", "{1}"}),
        Step("JSCAN BUSYLOOP QUEUE {q} STATE queued", ["0", ["{1}"]]),
        Step("JSCAN BUSYLOOP QUEUE {q} STATE active", ["0", ["{0}"]]),
        Step("JSCAN BUSYLOOP QUEUE {q} STATE wait-repl", ["0", []]),
        Step(
            "JSCAN BUSYLOOP QUEUE {q} STATE queued STATE active",
            lambda reply: set(reply[1]) == {"{0}", "{1}"},
        ),
        Step(
            "JSCAN BUSYLOOP QUEUE {q} STATE active REPLY all",
            lambda reply: fields(id="{0}", state="active", body="body")(reply[1][0]),
        ),
        Step("JSCAN BUSYLOOP QUEUE {q} REPLY id", lambda reply: len(reply[1]) == 2),
        Step("JSCAN BUSYLOOP QUEUE {q2}", ["0", []]),
        Step("JSCAN x", error("ERR invalid cursor or option name")),
        Step("JSCAN 0 0", SYNTAX),
        Step("JSCAN COUNT x", NOT_A_NUMBER),
        Step("JSCAN STATE foo", error("ERR Invalid job state name")),
        Step("JSCAN REPLY foo", error("ERR Invalid REPLY type, try ID or ALL")),
        Step("JSCAN STATE", error("ERR invalid cursor or option name")),
    ],
    # PAUSE
    "what is paused in takes no jobs": [
        add(),
        Step("PAUSE {q} in", "in"),
        Step("ADDJOB {q} body 0", error("PAUSED Queue paused in input, try later")),
        Step(GET, [taken(0)]),
        Step("PAUSE {q} none", "none"),
        add(),
    ],
    "what is paused out gives none out": [
        add(),
        Step("PAUSE {q} out", "out"),
        Step(GET, None),
        Step("GETJOB TIMEOUT 200 FROM {q}", None),
        add(),
        Step("QSTAT {q}", fields(pause="out", len=2)),
        Step("PAUSE {q} none", "none"),
        Step(GET, [taken(0)]),
    ],
    "pause takes several words": [
        Step("PAUSE {q} state", "none"),
        Step("PAUSE {q} all", "all"),
        Step("PAUSE {q} state", "all"),
        Step("PAUSE {q} in none out", "out"),
        Step("PAUSE {q} in out", "all"),
        Step("PAUSE {q} none in", "in"),
        Step("PAUSE {q} in none", "none"),
        Step("PAUSE {q} foo", SYNTAX),
        Step("PAUSE {q}", wrong("pause")),
        Step("PAUSE {q} all bcast", "all"),
        Step("PAUSE {q} none bcast", "none"),
    ],
    # The server
    "ping answers": [
        Step("PING", "PONG"),
        Step("ping hello", "hello"),
        Step("PING a b", wrong("ping")),
    ],
    "hello names the nodes": [
        Step(
            "HELLO",
            lambda reply: (
                reply[0] == 1
                and len(reply) == 3
                and reply[1] == reply[2][0]
                and len(reply[1]) == 40
                and reply[2][3] == "1"
            ),
        ),
        Step("HELLO x", wrong("hello")),
    ],
    "commands that nobody knows": [
        Step("FOO", error("ERR unknown command 'FOO'")),
        Step("foo bar", error("ERR unknown command 'foo'")),
    ],
    "time has two parts": [
        Step("TIME", lambda reply: len(reply) == 2 and all(one.isdigit() for one in reply)),
        Step("TIME x", wrong("time")),
    ],
    "auth without a password": [
        Step("AUTH x", error("ERR Client sent AUTH, but no password is set")),
        Step("AUTH", wrong("auth")),
    ],
    "info has sections": [
        Step("INFO", lambda reply: "# Server" in reply and "registered_queues:" in reply),
        Step("INFO queues", lambda reply: reply.startswith("# Queues\r\nregistered_queues:")),
        Step("INFO QUEUES", lambda reply: reply.startswith("# Queues")),
        Step("INFO nothing", ""),
        Step("INFO a b", SYNTAX),
    ],
    "config gets and sets": [
        Step("CONFIG GET timeout", ["timeout", "0"]),
        Step("CONFIG GET time*", ["timeout", "0"]),
        Step("CONFIG GET nothing", []),
        Step("CONFIG SET timeout 100", "OK"),
        Step("CONFIG GET timeout", ["timeout", "100"]),
        Step("CONFIG SET timeout 0", "OK"),
        Step("CONFIG SET timeout x", error("ERR Invalid argument 'x' for CONFIG SET 'timeout'")),
        Step("CONFIG SET foo bar", error("ERR Unsupported CONFIG parameter: foo")),
        Step("CONFIG GET", error("ERR Wrong number of arguments for CONFIG GET")),
        Step("CONFIG SET timeout", error("ERR Wrong number of arguments for CONFIG SET")),
        Step("CONFIG RESETSTAT", "OK"),
        Step("CONFIG REWRITE", error("ERR The server is running without a config file")),
        Step(
            "CONFIG FOO",
            error("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
        ),
        Step("CONFIG", wrong("config")),
    ],
    "a password is asked for once it is set": [
        Step("CONFIG SET requirepass secret", "OK"),
        Step("PING", error("NOAUTH Authentication required.")),
        Step("QLEN {q}", error("NOAUTH Authentication required.")),
        Step("AUTH wrong", error("ERR invalid password")),
        Step("PING", error("NOAUTH Authentication required.")),
        Step("AUTH secret", "OK"),
        Step("PING", "PONG"),
        Step('CONFIG SET requirepass ""', "OK"),
    ],
    "cluster describes the node": [
        Step("CLUSTER INFO", lambda reply: "cluster_known_nodes:1\r\n" in reply),
        Step("CLUSTER NODES", lambda reply: "myself" in reply and reply.endswith("connected\n")),
        Step("CLUSTER MYID", lambda reply: len(reply) == 40),
        Step("CLUSTER SAVECONFIG", "OK"),
        Step("CLUSTER MEET 127.0.0.1 x", error("ERR Invalid TCP port specified: x")),
        Step(
            "CLUSTER MEET 127.0.0.1 99999",
            error("ERR Invalid node address specified: 127.0.0.1:99999"),
        ),
        Step("CLUSTER FORGET x", error("ERR Invalid node identifier")),
        Step(f"CLUSTER FORGET {'0' * 40}", error(f"ERR Unknown node {'0' * 40}")),
        Step("CLUSTER RESET foo", SYNTAX),
        Step("CLUSTER FOO", error("ERR Wrong CLUSTER subcommand or number of arguments")),
        Step("CLUSTER", wrong("cluster")),
    ],
    "a node that leaves takes no jobs and lets nobody wait": [
        add(),
        Step("CLUSTER LEAVING", "no"),
        Step("CLUSTER LEAVING yes", "OK"),
        Step("CLUSTER LEAVING", "yes"),
        Step("HELLO", lambda reply: reply[2][3] == "100"),
        Step(
            "ADDJOB {q} body 0",
            error(
                "NOREPL Not enough reachable nodes for the requested replication level, since I'm"
                " unable to hold a copy of the message for the following reason: I'm leaving the"
                " cluster"
            ),
        ),
        Step(GET, [taken(0)]),
        Step(
            "GETJOB FROM {q}",
            error("LEAVING This node is leaving the cluster, please connect to a different one"),
        ),
        Step("CLUSTER LEAVING no", "OK"),
        add(),
        Step(
            "CLUSTER LEAVING x", error("ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
        ),
    ],
    "clients have names": [
        Step("CLIENT GETNAME", None),
        Step("CLIENT SETNAME worker", "OK"),
        Step("CLIENT GETNAME", "worker"),
        Step("CLIENT LIST", lambda reply: "name=worker" in reply and "cmd=client" in reply),
        Step(
            'CLIENT SETNAME "a b"',
            error("ERR Client names cannot contain spaces, newlines or special characters."),
        ),
        Step("CLIENT PAUSE x", error("ERR timeout is not an integer or out of range")),
        Step("CLIENT KILL 1.2.3.4:5", error("ERR No such client")),
        Step("CLIENT KILL ID 999999999", 0),
        Step("CLIENT KILL ID x", NOT_A_NUMBER),
        Step("CLIENT KILL FOO x", SYNTAX),
        Step("CLIENT KILL TYPE foo", error("ERR Unknown client type 'foo'")),
        Step("CLIENT KILL SKIPME foo", SYNTAX),
        Step("CLIENT REPLY ON", "OK"),
        Step("CLIENT REPLY foo", SYNTAX),
        Step(
            "CLIENT FOO",
            error(
                "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME"
                " connection-name)"
            ),
        ),
        Step("CLIENT", wrong("client")),
    ],
    "command lists the table": [
        Step("COMMAND INFO qlen foo", [["qlen", 2, ["readonly", "fast"], 0, 0, 0], None]),
        Step("COMMAND INFO addjob", [["addjob", -4, ["write", "denyoom", "fast"], 0, 0, 0]]),
        Step("COMMAND COUNT", lambda reply: reply > 20),
        Step("COMMAND", lambda reply: len(reply) > 20 and len(reply[0]) == 6),
        Step("COMMAND FOO", error("ERR Unknown subcommand or wrong number of arguments.")),
    ],
    "logs of what was slow": [
        Step("SLOWLOG GET", []),
        Step("SLOWLOG GET 5", []),
        Step("SLOWLOG GET x", NOT_A_NUMBER),
        Step("SLOWLOG LEN", 0),
        Step("SLOWLOG RESET", "OK"),
        Step(
            "SLOWLOG FOO",
            error("ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."),
        ),
        Step("LATENCY LATEST", []),
        Step("LATENCY HISTORY x", []),
        Step("LATENCY RESET", 0),
        Step("LATENCY FOO", SYNTAX),
    ],
    "what only Disque's own files may say": [
        Step("LOADJOB x", error("ERR LOADJOB is a special command only processed from AOF")),
    ],
    "debug and shutdown refuse what they do not know": [
        Step(
            "DEBUG FOO",
            error("ERR Unknown DEBUG subcommand or wrong number of arguments for 'FOO'"),
        ),
        Step("DEBUG ERROR oops", error("oops")),
        Step("DEBUG", wrong("debug")),
        Step("SHUTDOWN FOO", SYNTAX),
        Step("SHUTDOWN REWRITE-AOF FOO", SYNTAX),
    ],
}
