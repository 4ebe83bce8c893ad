"""Every cell is answered as Kafka answers it: API x resource x operation x kind of rule.

``--target kafka`` asks Apache Kafka about all cells, whose answers the table states.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.peers import kafka
from qbus.wire import ApiKey
from tests.support.tools import skip_because_of

from .matrix.absent import ABSENT, renamed, without_what_exists
from .matrix.principals import THIS_HOST, USERS, User, everything
from .matrix.row import Answer, Row, names_in
from .matrix.table import FOR_EVERYBODY, TABLE
from .matrix.versions import in_all_versions
from .matrix.world import KafkaWorld, QbusWorld, World

pytestmark = pytest.mark.security

Cells = dict[str, dict[str, Answer]]


def is_asked(row: Row, user: User) -> bool:
    """Whether a row has a cell for a user."""
    if row.is_bare != user.is_bare:
        return False
    return not row.only_refused or any(True for _ in row.refusals(user.all_rules, THIS_HOST))


def asked(world: World, users: "list[User]", rows: "tuple[Row, ...]" = TABLE) -> Cells:
    """What is answered, by user and row."""
    known = [row for row in rows if world.name == "qbus" or row.is_kafkas]
    return {
        user.name: world.answers(user, [row for row in known if is_asked(row, user)])
        for user in users
    }


def disagreements(row: Row, cells: Cells, target: str) -> list[str]:
    """The cells of a row that are answered otherwise, for people."""
    found = []
    for user in USERS:
        if row.label in cells.get(user.name, {}):
            got = cells[user.name][row.label]
            wanted = row.expected(user.all_rules, THIS_HOST, target)
            if got != wanted:
                found.append(f"{user.name}: {_shown(got)}, instead of {_shown(wanted)}")
    return found


def _shown(answer: Answer) -> str:
    return "; ".join(sorted(answer)) or "no error"


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The broker that ``--target`` names."""
    directory: Path = tmp_path_factory.mktemp("matrix")
    if request.config.getoption("--target") == "kafka":
        skip_because_of(kafka.missing())
        made: World = KafkaWorld(directory)
    else:
        made = QbusWorld(directory)
    with made as running:
        yield running


@pytest.fixture(scope="module")
def cells(world: World) -> Cells:
    """All its answers."""
    return asked(world, list(USERS))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.label)
def test_a_row(row: Row, cells: Cells, world: World) -> None:
    if world.name == "kafka" and not row.is_kafkas:
        pytest.skip("Apache Kafka does not have it")
    assert any(row.label in one for one in cells.values())
    assert disagreements(row, cells, world.name) == []


def test_a_super_user_may_everything(world: World) -> None:
    """Also what is denied to everybody."""
    rows = [
        one for one in TABLE if not one.only_refused and (world.name == "qbus" or one.is_kafkas)
    ]
    with world.admin() as client:
        found = world.answered(client, rows)
    for row in rows:
        assert found[row.label] == row.expected(tuple(everything()), THIS_HOST, world.name), row


def test_no_version_tells_more_than_another(world: World) -> None:
    """Whoever may nothing is refused by every version of a request, and shown nothing."""
    (user,) = (one for one in USERS if one.name == "nothing")
    refused = [
        row
        for row in TABLE
        if any(True for _ in row.refusals(user.all_rules, THIS_HOST))
        and not row.is_bare
        and "lobby" not in names_in(row.request)
        and (world.name == "qbus" or row.is_kafkas)
    ]
    rows = [one for row in refused for one in in_all_versions(row, world.ids)]
    assert len(rows) > 3 * len(refused)
    answers = world.answers(user, rows)
    told = {
        label: found
        for label, found in answers.items()
        if not found or not all(part.endswith("_AUTHORIZATION_FAILED") for part in found)
    }
    if world.name == "kafka":  # versions that it does not have any more
        told = {label: found for label, found in told.items() if found != {"closed"}}
    assert told == {}


@pytest.mark.parametrize("name", ["nothing", "bare-nothing"])
def test_what_is_there_and_what_is_not_look_the_same(name: str, world: World) -> None:
    """Whoever may not describe a name is not told whether there is such a thing.

    Ids of topics are no secret, so rows that ask by id are left out; and those that change what is
    in the lobby, whose answers differ for that.
    """
    if world.name == "kafka":
        pytest.skip("its texts of errors tell of the request as an object in memory")
    (user,) = (one for one in USERS if one.name == name)
    rows = [
        row
        for row in TABLE
        if names_in(row.request) & set(ABSENT)
        and not (row.api in {"PRODUCE", "FETCH"} and "lobby" in names_in(row.request))
    ]
    assert len(rows) > 40
    there = world.responses(user, rows)
    absent = world.responses(user, [without_what_exists(row) for row in rows])
    for row, one, other in zip(rows, there, absent, strict=True):
        assert renamed(one) == other, row.label


def test_no_api_is_forgotten() -> None:
    stated = {row.api for row in TABLE} | set(FOR_EVERYBODY)
    assert stated == {key.name for key in ApiKey}


def test_rows_are_told_apart() -> None:
    labels = [row.label for row in TABLE]
    assert len(set(labels)) == len(labels)


def test_every_row_refuses_somebody_and_serves_somebody() -> None:
    """A row whose answer does not depend on rules would test nothing."""
    for row in TABLE:
        answers = {
            row.expected(user.all_rules, THIS_HOST) for user in USERS if user.is_bare == row.is_bare
        }
        # Of the topic that nobody may read nobody is served, but super users.
        if (row.checks or row.shows) and not names_in(row.request) & {"plaza", "closed"}:
            assert len(answers) > 1, row.label


def test_there_are_enough_cells() -> None:
    count = sum(is_asked(row, user) for row in TABLE for user in USERS)
    assert count > 10_000
