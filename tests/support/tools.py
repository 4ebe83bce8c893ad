"""Tools that tests need: a test skips without them, and fails where CI installed them."""

import re

import pytest

_MISSING = re.compile(
    r"is not installed|needs? Java|needs? iproute2|no compiler|was not built|could not import"
)


def missing_tool(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Return the reason why a test was skipped, if that is a tool that is missing."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return None
    reason = report.longrepr[2]
    return reason if _MISSING.search(reason) else None


def require_tools(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for want of a tool into a failure that says which one."""
    reason = missing_tool(report)
    if reason is not None:
        report.outcome = "failed"
        report.longrepr = f"a tool that CI installs is missing: {reason}"


def skip_because_of(reason: str | None) -> None:
    """Skip the test if there is a reason why it cannot run here."""
    if reason is not None:
        pytest.skip(reason)
