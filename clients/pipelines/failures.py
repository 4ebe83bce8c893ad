"""The reason why a query failed, in one line of Spark's long error text."""

import re

from qbus.errors import QbusError

_OURS = re.compile(r"^(?:qbus|pyspark_qbus)[\w.]*\.(\w+): (.+)$", re.MULTILINE)
_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+?)(?=\s*\[[A-Z][A-Z0-9_.]+\]|\s*SQLSTATE: |\s*$)", re.MULTILINE
)
_WRAPPERS = re.compile(
    r"STREAM_FAILED|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR|PYTHON_DATA_SOURCE_ERROR"
    r"|FOREACH_BATCH_USER_FUNCTION_ERROR|FAILED_EXECUTE_UDF"
)
_EXCEPTION = re.compile(
    r"^(?:Caused by: |: )?[\w.$]*?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE
)
_OF_STATE = re.compile(
    r"STATE_STORE|STATEFUL|CHECKPOINT|OFFSET_LOG|LOG_VERSION|LOG_FILE|INCOMPATIBLE"
    r"|JSONDecodeError",  # the only JSON that Spark reads is that of checkpoints
    re.IGNORECASE,
)


class PipelineFailed(QbusError):  # noqa: N818 - what happened
    """A query has failed; the message has the reason and, where known, a remedy."""


def reason(error: BaseException) -> str:
    """The message of the first failure in the text of Spark's error."""
    if isinstance(error, QbusError):
        return str(error)
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    told = [found for found in _CONDITION.findall(text) if not _WRAPPERS.match(found[0])]
    thrown = _EXCEPTION.findall(text)
    if told:
        condition, words = told[-1]
    elif thrown:
        condition, words = thrown[-1]
    else:
        condition, words = "", text.strip().partition("\n")[0]
    hint = ""
    if _OF_STATE.search(condition):
        hint = (
            ". The checkpoint is damaged, or belongs to another configuration or version: use that"
            " one, or another --checkpoint"
        )
    words = words.strip() or type(error).__name__
    return (f"{words} ({condition})" if condition else words) + hint
