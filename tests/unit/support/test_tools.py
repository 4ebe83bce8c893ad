"""In CI a test does not skip for want of a tool that CI installs."""

import pytest

from tests.support.tools import require_tools


def skipped(reason: str) -> pytest.TestReport:
    where = ("test_it.py", 7, reason)
    return pytest.TestReport("test_it", ("test_it.py", 7, "test_it"), {}, "skipped", where, "setup")


@pytest.mark.parametrize(
    "reason",
    [
        "Skipped: kcat is not installed",
        "Skipped: ZooKeeper needs Java",
        "Skipped: network namespaces need iproute2",
        "Skipped: could not import 'pyarrow': No module named 'pyarrow'",
        "Skipped: the compiled codec was not built: there was no compiler",
    ],
)
def test_a_missing_tool_fails(reason: str) -> None:
    report = skipped(reason)
    require_tools(report)
    assert report.failed
    assert reason in str(report.longrepr)


@pytest.mark.parametrize(
    "reason", ["Skipped: Kafka has no ZooKeeper", "Skipped: npm cannot fetch kafkajs"]
)
def test_what_is_no_tool_of_ci_still_skips(reason: str) -> None:
    report = skipped(reason)
    require_tools(report)
    assert report.skipped
