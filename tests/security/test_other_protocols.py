"""The same users, with the same rules, over RESP and HTTP."""

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.ports import free_port
from tests.support.resp_client import RespClient

from .matrix.other_protocols import COMMANDS, JOB, METRICS_NEED, Command, kind_of
from .matrix.principals import THIS_HOST, USERS, User
from .matrix.rules import Need, is_allowed
from .matrix.world import ADMIN, ADMIN_PASSWORD, QbusWorld

pytestmark = pytest.mark.security

# Rules about groups and transactional ids mean nothing here, but for reading groups.
_USERS = [
    user
    for user in USERS
    if user.name.startswith(("nothing", "topic-", "cluster-", "group-read-", "group-all-"))
]


class Ways:
    """The ways into a broker besides Kafka's protocol."""

    def __init__(self, jobs: int, metrics: int) -> None:
        self.jobs, self.metrics = jobs, metrics
        with RespClient(jobs) as admin:
            assert admin("AUTH", ADMIN, ADMIN_PASSWORD) == "OK"
            for queue in ("lobby", "vault"):  # what nobody has used for jobs is not listed
                admin("ADDJOB", queue, "of the administrator", "1000")
            self.job = admin("ADDJOB", "orders", "of the administrator", "1000")
        self.replies = {user.name: self._replies(user) for user in _USERS}

    def _replies(self, user: User) -> dict[str, str]:
        found = {}
        with RespClient(self.jobs) as client:
            assert client("AUTH", user.name, user.password) == "OK", user.name
            for command in _asked(user):
                words = command.words.replace(JOB, self.job).split()
                found[command.words] = kind_of(client(*words), command.words)
        return found

    def status(self, user: str | None = None, password: str = "") -> int:
        """The status of metrics."""
        request = urllib.request.Request(f"http://{THIS_HOST}:{self.metrics}/metrics")
        if user is not None:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def _asked(user: User) -> list[Command]:
    return [
        one for one in COMMANDS if not one.only_refused or one.refusal(user.all_rules) is not None
    ]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """A broker with all of them."""
    jobs, metrics = free_port(), free_port()
    settings = {
        "disque.listen": f"{THIS_HOST}:{jobs}",
        "metrics.listen": f"{THIS_HOST}:{metrics}",
    }
    with QbusWorld(tmp_path_factory.mktemp("ways"), _USERS, settings):
        yield Ways(jobs, metrics)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.words)
def test_a_command(command: Command, ways: Ways) -> None:
    wrong = [
        f"{user.name}: {got}, instead of {command.expected(user.all_rules)}"
        for user in _USERS
        if (got := ways.replies[user.name].get(command.words)) is not None
        and got != command.expected(user.all_rules)
    ]
    assert wrong == []


def test_commands_need_a_user(ways: Ways) -> None:
    for command in COMMANDS:
        with RespClient(ways.jobs) as client:
            words = command.words.replace(JOB, ways.job).split()
            assert str(client(*words)).startswith("NOAUTH"), command.words


def test_metrics_are_for_those_who_may_describe_the_cluster(ways: Ways) -> None:
    need = Need.parse(METRICS_NEED)
    wanted = {
        user.name: 200 if is_allowed(user.all_rules, THIS_HOST, need) else 403 for user in _USERS
    }
    # A few of each: passwords are slow to check, on purpose.
    asked = [user for user in _USERS if user.name.startswith(("cluster-describe", "nothing"))]
    asked += [user for user in _USERS if user.name.startswith("topic-read")]
    assert {user.name: ways.status(user.name, user.password) for user in asked} == {
        user.name: wanted[user.name] for user in asked
    }


def test_metrics_need_a_user(ways: Ways) -> None:
    assert ways.status() == 401
    assert ways.status("nobody-there", "matrix-secret-of-nobody-there") == 401
    assert ways.status(ADMIN, "matrix-secret-that-is-wrong") == 401
    assert ways.status(ADMIN, ADMIN_PASSWORD) == 200
