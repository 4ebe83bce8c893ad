"""Errors that a command is answered with."""


class CommandError(Exception):
    """A command is refused; the text is the whole reply, such as ``ERR syntax error``."""


def syntax_error() -> CommandError:
    """Disque's answer to words that it does not expect."""
    return CommandError("ERR syntax error")


def wrong_arguments(command: str) -> CommandError:
    """Disque's answer to a wrong number of arguments."""
    return CommandError(f"ERR wrong number of arguments for '{command}' command")


BAD_ID = "BADID Invalid Job ID format."
NO_JOB = "NOJOB Job not known in the context of this node."
TOO_LATE = (
    "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next"
    " delivery."
)
NO_REPLICAS = "NOREPL Not enough reachable nodes for the requested replication level"
NO_REPLICAS_IN_TIME = "NOREPL Timeout reached before replicating to the requested number of nodes"
NO_REPLICAS_HERE = (
    "NOREPL Not enough reachable nodes for the requested replication level, since I'm unable to"
    " hold a copy of the message for the following reason: {}"
)
IS_LONG = "MAXLEN Queue is already longer than the specified MAXLEN count"
IS_PAUSED = "PAUSED Queue paused in input, try later"
IS_LEAVING = "LEAVING This node is leaving the cluster, please connect to a different one"
NO_ROOM = "OOM command not allowed when used memory > 'maxmemory'."
NOT_STORED = "MISCONF Errors writing to the log: {}"
NOT_SERVED = "MISCONF Partition {} of the queue cannot be used: its data directory or log failed"
NEEDS_PASSWORD = "NOAUTH Authentication required."  # noqa: S105 - a reply
WRONG_PASSWORD = "ERR invalid password"  # noqa: S105 - a reply
WRONG_PAIR = "WRONGPASS invalid username-password pair or user is disabled."
NOT_THIS_COMMAND = "NOPERM User {} has no permissions to run the '{}' command"
NOT_THIS_KEY = "NOPERM No permissions to access a key: {} is not allowed to {}"
NOT_ANY_MORE = "NOPERM No permissions to access a key: they were taken away while you waited"
TOO_MANY_CLIENTS = "ERR max number of clients reached"
HAS_FAILED = "ERR the broker has failed; its log says why"
