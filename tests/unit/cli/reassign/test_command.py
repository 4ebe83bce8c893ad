"""`qbus reassign verify`: its exit code says what became of the plan."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qbus.cli import session
from qbus.cli.failures import FINDINGS
from qbus.clients import Reassignment
from tests.unit.cli.reassign.test_actions import PLACE, Admin
from tests.unit.cli.security_fakes import failure, run


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    """A cluster whose partition t-0 is on brokers 1 and 2."""
    found = Admin()

    @asynccontextmanager
    async def administration(_: object) -> AsyncIterator[Admin]:
        yield found

    monkeypatch.setattr(session, "administration", administration)
    return found


def states(arguments: list[str], code: int) -> list[str]:
    result = run("reassign", "verify", "--json", *arguments)
    assert result.exit_code == code, result.output
    return [one["state"] for one in json.loads(result.stdout)["partitions"]]


def test_a_plan_that_is_done(admin: Admin) -> None:
    assert states(["--move", "t:0=1,2"], 0) == ["done"]


def test_a_plan_that_was_not_carried_out_or_still_moves(admin: Admin) -> None:
    assert states(["--move", "t:0=3,2"], FINDINGS) == ["elsewhere"]
    admin.moving = {PLACE: Reassignment((1, 2, 3), (3,), (1,))}
    assert states(["--move", "t:0=3,2"], FINDINGS) == ["moving"]


def test_a_plan_without_partitions_is_no_success(admin: Admin, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": []}')

    said = failure(["reassign", "verify", str(plan)])

    assert said == f"qbus: {plan}: the plan names no partition"
