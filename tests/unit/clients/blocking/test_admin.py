"""The blocking admin client is the asyncio one, waited for."""

import inspect
import threading
from collections.abc import Callable, Iterator

import pytest

from qbus.clients import Admin as AsyncioAdmin
from qbus.clients.blocking.admin import Admin
from qbus.clients.blocking.loop import LoopThread
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from tests.support.fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    thread = LoopThread("fake broker")
    broker = thread.run(FakeBroker({"b": 2, "a": 1}).__aenter__())
    yield broker
    thread.run(broker.__aexit__())
    thread.close()


def public_methods(cls: type) -> dict[str, Callable[..., object]]:
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def test_sync_and_async_clients_have_the_same_methods_and_documentation() -> None:
    ours, theirs = public_methods(Admin), public_methods(AsyncioAdmin)
    assert ours.keys() == theirs.keys()
    for name, method in ours.items():
        assert inspect.signature(method) == inspect.signature(theirs[name]), name
        if name != "close":
            assert inspect.getdoc(method) == inspect.getdoc(theirs[name])
            assert not inspect.iscoroutinefunction(method)


def test_both_faces_are_made_alike() -> None:
    assert inspect.signature(Admin) == inspect.signature(AsyncioAdmin)
    assert Admin.__init__.__doc__ == AsyncioAdmin.__init__.__doc__


def test_answers_and_errors(broker: FakeBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["a", "b"]
        assert len(admin.describe_topic("b").partitions) == 2
        with pytest.raises(ApiError) as caught:
            admin.describe_topic("missing")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_threads(broker: FakeBroker) -> None:
    found: list[int] = []
    with Admin(broker.bootstrap) as admin:
        asking = [
            threading.Thread(target=lambda: found.append(len(admin.list_topics())))
            for _ in range(10)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert found == [2] * 10


def test_after_close() -> None:
    admin = Admin("127.0.0.1:1")
    admin.close()
    admin.close()
    with pytest.raises(QbusError, match="closed"):
        admin.list_topics()


def test_a_wrong_bootstrap_starts_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError):
        Admin("")
    assert threading.active_count() == before
