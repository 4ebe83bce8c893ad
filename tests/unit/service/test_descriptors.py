import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.clock import ManualClock
from qbus.service import descriptors
from qbus.service.descriptors import Shortages, SpareDescriptor
from tests.support.descriptors import exhausted

EMFILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


class TestCounts:
    def test_a_file_counts(self) -> None:
        before = descriptors.count()
        assert before is not None
        with Path(os.devnull).open():
            assert descriptors.count() == before + 1
        assert before < descriptors.limit()

    def test_without_descriptors_the_count_is_unknown(self) -> None:
        with exhausted():
            assert descriptors.count() is None


class TestSpareDescriptor:
    def test_it_lets_a_process_without_others_turn_clients_away(
        self, listening: socket.socket
    ) -> None:
        spare = SpareDescriptor()
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
        with exhausted():
            with pytest.raises(OSError, match="Too many open files"):
                listening.accept()
            assert spare.turn_away(listening) == 3
            assert spare.turn_away(listening) == 0, "and has it again"
            with pytest.raises(OSError, match="Too many open files"):
                os.open(os.devnull, os.O_RDONLY)
        for client in clients:
            with client:
                assert client.recv(1) == b""
        spare.close()
        spare.close()

    def test_one_that_could_not_be_taken_is_taken_later(self, listening: socket.socket) -> None:
        with exhausted():
            spare = SpareDescriptor()
            assert spare.turn_away(listening) == 0
        assert spare.turn_away(listening) == 0
        with socket.create_connection(listening.getsockname()), exhausted():
            assert spare.turn_away(listening) == 1
        spare.close()


class TestShortages:
    def test_a_line_names_the_error_the_limit_and_the_users(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        shortages = Shortages()
        shortages.users["connections"] = lambda: 7
        shortages.report("open a.log", EMFILE)
        (line,) = caplog.messages
        assert line.startswith("cannot open a.log: Too many open files (EMFILE)")
        assert f"the limit of this process is {descriptors.limit()} descriptors" in line
        assert "(connections: 7)" in line
        assert "ulimit -n" in line

    def test_there_is_a_line_every_ten_seconds(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = ManualClock()
        shortages = Shortages(clock.monotonic)
        for _ in range(5):
            shortages.report("accept", EMFILE)
        clock.advance(10)
        shortages.report("accept", EMFILE)
        assert shortages.count == 6
        assert len(caplog.messages) == 2
        assert "and 4 times before" in caplog.messages[1]

    def test_the_system_may_be_short_as_well(self) -> None:
        error = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        assert "(ENFILE)" in Shortages().describe(error)
