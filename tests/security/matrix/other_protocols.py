"""Jobs over RESP and metrics over HTTP: what rules mean for protocols that Kafka does not have.

A queue is the topic of its name, and jobs are taken by the share group ``disque``. Where a command
names a queue, a refusal is the same whether there is such a queue or not; where it names a job by
its id, a job of a queue that one may not describe is a job that there is not.
"""

from typing import Final, NamedTuple

from .principals import THIS_HOST
from .row import Check
from .rules import Need, Rule, is_allowed

NO_PERMISSION: Final = "NOPERM"
DONE: Final = "done"
NO_JOB: Final = "no such job"
JOB: Final = "<id>"
"""Stands for the id of a job in the queue ``orders``."""


class Command(NamedTuple):
    """A command, what it needs in which order, and the kind of its reply if nothing refuses."""

    words: str
    checks: tuple[Check, ...] = ()
    then: str = DONE
    #: Not asked by those who are allowed: it would change what others are asked about.
    only_refused: bool = False
    #: Queues in a reply that is a list, by what one needs to see them.
    lists: tuple[tuple[str, str], ...] = ()

    def refusal(self, rules: tuple[Rule, ...]) -> str | None:
        """How somebody with these rules is refused; None if not."""
        for check in self.checks:
            if not check.passes(rules, THIS_HOST):
                return check.refusal[0]
        return None

    def expected(self, rules: tuple[Rule, ...]) -> str:
        """The kind of reply to somebody with these rules."""
        refusal = self.refusal(rules)
        if refusal is None and self.lists:
            seen = (
                name for name, need in self.lists if is_allowed(rules, THIS_HOST, Need.parse(need))
            )
            return f"lists {' '.join(sorted(seen))}".rstrip()
        return refusal or self.then


def _needs(needs: str) -> Check:
    return Check(needs, NO_PERMISSION)


_QUEUES: Final = ("orders", "lobby", "vault")
_BY_ID: Final = Check("DESCRIBE topic orders", NO_JOB)
_TAKES: Final = _needs("READ group disque")

COMMANDS: Final = (
    Command("PING"),
    Command("TIME"),
    Command("ADDJOB orders body 1000", (_needs("WRITE topic orders"),)),
    Command(
        "ADDJOB orders-absent body 1000",
        (
            _needs("WRITE topic orders-absent"),
            _needs("CREATE cluster or CREATE topic orders-absent"),
        ),
        only_refused=True,
    ),
    Command("GETJOB NOHANG FROM orders-absent", (_needs("READ topic orders-absent"), _TAKES)),
    Command("GETJOB NOHANG FROM orders", (_needs("READ topic orders"), _TAKES), only_refused=True),
    Command("QLEN orders", (_needs("DESCRIBE topic orders"),)),
    Command("QLEN orders-absent", (_needs("DESCRIBE topic orders-absent"),)),
    Command("QSTAT orders", (_needs("DESCRIBE topic orders"),)),
    Command("QSTAT orders-absent", (_needs("DESCRIBE topic orders-absent"),)),
    Command("QPEEK orders 1", (_needs("READ topic orders"),)),
    Command("QPEEK orders-absent 1", (_needs("READ topic orders-absent"),)),
    Command("PAUSE orders state", (_needs("DESCRIBE topic orders"),)),
    Command("PAUSE orders in", (_needs("ALTER_CONFIGS topic orders"),), only_refused=True),
    Command("QSCAN", lists=tuple((name, f"DESCRIBE topic {name}") for name in _QUEUES)),
    Command(f"SHOW {JOB}", (_BY_ID, _needs("READ topic orders"))),
    Command(f"ACKJOB {JOB}", (_TAKES, _BY_ID, _needs("READ topic orders")), only_refused=True),
    Command(f"DELJOB {JOB}", (_BY_ID, _needs("DELETE topic orders")), only_refused=True),
    Command("INFO", (_needs("DESCRIBE cluster"),)),
    Command("CLIENT LIST", (_needs("DESCRIBE cluster"),)),
    Command("CLUSTER NODES", (_needs("DESCRIBE cluster"),)),
    Command("CONFIG GET maxmemory", (_needs("DESCRIBE_CONFIGS cluster"),)),
    Command(
        "CONFIG SET maxmemory-policy none",
        (_needs("ALTER_CONFIGS cluster"),),
        only_refused=True,
    ),
    Command("CLIENT KILL 127.0.0.1:1", (_needs("ALTER cluster"),), only_refused=True),
    Command("DEBUG FLUSHALL", (_needs("ALTER cluster"),), only_refused=True),
    Command("SHUTDOWN", (_needs("ALTER cluster"),), only_refused=True),
)


def kind_of(reply: object, words: str) -> str:
    """What a reply is, in the words of the table."""
    if isinstance(reply, Exception):
        text = str(reply)
        if text.startswith("NOPERM"):
            return NO_PERMISSION
        return NO_JOB if text.startswith("NOJOB") else text
    if words == "QSCAN" and isinstance(reply, list):
        return f"lists {' '.join(sorted(map(str, reply[1])))}".rstrip()
    by_id = words.split(maxsplit=1)[0] in {"SHOW", "ACKJOB", "DELJOB"}
    return NO_JOB if by_id and reply in (None, 0) else DONE


METRICS_NEED: Final = "DESCRIBE cluster"
"""What one needs to read metrics: 200; 403 without, and 401 for those who say not who they are."""
