r"""Lines of access logs: the Common and the Combined Log Format of Apache's ``mod_log_config``.

``address identity user [time] "request" status bytes "referer" "agent"``; the last two are missing
in the Common Log Format. Quotes within quotes are escaped with a backslash. Additional text at
the end is ignored.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sql

_QUOTED = r'"((?:[^"\\]++|\\.)*+)"'
# Possessive, so that no line, however long and hostile, takes more than one pass or a deep stack.
_PATTERN = (
    r"^(\S++) (\S++) ([^\[]*+)\[([^\]]++)\] "
    + _QUOTED
    + r" (\d{3}) (\d{1,18}|-)(?: "
    + _QUOTED
    + " "
    + _QUOTED
    + r")?(?: [^\x00]*)?$"
)
_GROUPS = ("address", "identity", "user", "time", "request", "status", "bytes", "referer", "agent")
_SEPARATOR = "\0"
_TIME_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def fields(line: Column) -> tuple[dict[str, Column], Column]:
    """The fields of a line by name, with the time; and whether the line is well-formed.

    ``target`` is the requested URL, ``path`` is that without its ``query``. ``-`` becomes null; for
    bytes it becomes 0.
    """
    # One pass over the line: a column for each group would take one pass each.
    written = _SEPARATOR.join(f"${number}" for number in range(1, len(_GROUPS) + 1))
    found = sql.split(sql.regexp_replace(line, _PATTERN, written), _SEPARATOR)
    group = {name: sql.get(found, sql.lit(at)) for at, name in enumerate(_GROUPS)}
    words = sql.split(group["request"], " ")
    target = _known(sql.get(words, sql.lit(1)))
    columns = {
        "address": group["address"],
        "identity": _known(group["identity"]),
        "user": _known(sql.rtrim(group["user"])),
        "time": sql.try_to_timestamp(group["time"], sql.lit(_TIME_FORMAT)),
        "request": _known(group["request"]),
        "method": _known(sql.get(words, sql.lit(0))),
        "target": target,
        "path": sql.substring_index(target, "?", 1),
        "query": sql.when(target.contains("?"), sql.regexp_replace(target, r"^[^?]*+\?", "")),
        "protocol": sql.get(words, sql.lit(2)),
        "status": group["status"].try_cast("int"),
        "bytes": sql.when(group["bytes"] == "-", sql.lit(0)).otherwise(
            group["bytes"].try_cast("bigint")
        ),
        "referer": _known(group["referer"]),
        "agent": _known(group["agent"]),
    }
    is_whole = (
        (sql.size(found) == len(_GROUPS))
        & ~line.contains(
            _SEPARATOR
        )  # the pattern does not match: the separators are the line's own
        & columns["time"].isNotNull()
    )
    return columns, sql.coalesce(is_whole, sql.lit(False))


def _known(column: Column) -> Column:
    return sql.nullif(sql.nullif(column, sql.lit("-")), sql.lit(""))
