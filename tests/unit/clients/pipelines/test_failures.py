"""One line out of the hundred that Spark says."""

import pytest

from qbus.clients.pipelines.failures import reason
from qbus.errors import ConfigError

OURS = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE]
Traceback (most recent call last):
  File "stream.py", line 3, in latestOffset
qbus.clients.spark.errors.DataLoss: t-0: records 0 to 9 are gone. Nothing was skipped
 SQLSTATE: 38000"""
SPARKS = (
    "[STREAM_FAILED] Query terminated with exception: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]"
    " Provided key schema does not match. SQLSTATE: 42K06"
)
DISK = """[STREAM_FAILED] Query terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR]
An error occurred in the user provided function in foreach batch sink. Reason: An exception was
raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "linking.py", line 3, in create
OSError: [Errno 28] No space left on device
 SQLSTATE: 39000"""
JAVA = """An error occurred while calling o73.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.X(X.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""
ANALYSIS = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703"


def test_our_own_words() -> None:
    found = reason(RuntimeError(OURS))
    assert found == "t-0: records 0 to 9 are gone. Nothing was skipped"
    assert reason(ConfigError("path is missing")) == "path is missing"


def test_sparks_conditions_are_unwrapped() -> None:
    assert reason(RuntimeError(ANALYSIS)) == (
        "A column `x` cannot be resolved. (UNRESOLVED_COLUMN.WITH_SUGGESTION)"
    )


def test_the_error_of_a_damaged_checkpoint_has_a_remedy() -> None:
    assert "or another --checkpoint" in reason(RuntimeError(SPARKS))


def test_the_first_exception_without_a_condition() -> None:
    assert reason(RuntimeError(DISK)) == "[Errno 28] No space left on device (OSError)"
    assert reason(RuntimeError(JAVA)) == "No space left on device (IOException)"


@pytest.mark.parametrize("text", ["", "\n", "boom"])
def test_always_something(text: str) -> None:
    assert reason(RuntimeError(text)) == (text.strip() or "RuntimeError")
