"""An archive that is killed again and again while records arrive has each record once."""

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from qbus import Admin, Producer
from tests.support import spark_session
from tests.support.broker_process import BrokerProcess
from tests.support.process_group import ProcessGroup
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

_KILLS = 6
_PATIENCE = 300.0
_SPARK = ("--master", "local[2]", "--spark", "spark.driver.memory=1g")


class Archive:
    """``qbus pipeline archive`` as a process, Python and Java, and what it has committed."""

    def __init__(self, broker: BrokerProcess, topic: str, directory: Path) -> None:
        self.path = directory / "archive"
        self.log = directory / "output"
        config = directory / "archive.toml"
        # A compaction after each batch.
        config.write_text(
            f'bootstrap = "{broker.bootstrap}"\npath = "{self.path}"\n'
            f'[source]\ntopics = ["{topic}"]\n[compaction]\nfiles = 2\n'
        )
        self._command = [sys.executable, "-m", "qbus", "pipeline"]
        self._options = ["--config", str(config), *_SPARK]
        self._group = ProcessGroup(self.log)

    def start(self) -> None:
        """Run it, for ever."""
        self._group.run([*self._command, "archive", *self._options, "--interval", "250ms"])

    def keep_running(self) -> None:
        """Start it again if it ended: on a busy machine Spark may not start in time."""
        if not self._group.is_running:
            self.start()

    def kill(self) -> None:
        """End Python and Java at once."""
        self._group.kill()

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run a pipeline to its end."""
        return subprocess.run([*self._command, name, *words], capture_output=True, check=False)

    def finish(self) -> None:
        """Archive what is left."""
        done = self.run("archive", *self._options, "--once")
        assert done.returncode == 0, done.stderr.decode()

    def commits(self) -> int:
        """The number of the last commit, -1 for none."""
        names = [path.name.removesuffix(".compact") for path in self._metadata()]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def values(self) -> Counter[int]:
        """The values in committed files: those of the last compaction and of later commits."""
        import pyarrow.parquet as pq

        commits = {int(path.name.partition(".")[0]): path for path in self._metadata()}
        whole = [number for number, path in commits.items() if path.suffix == ".compact"]
        files = [
            Path(unquote(urlsplit(json.loads(line)["path"]).path))
            for number in range(max(whole, default=0), max(commits) + 1)
            for line in commits[number].read_text().splitlines()[1:]
        ]
        tables = [pq.read_table(path, columns=["value"], partitioning=None) for path in files]
        return Counter(int(value) for table in tables for value in table["value"].to_pylist())

    def _metadata(self) -> list[Path]:
        found = (self.path / "_spark_metadata").glob("*")
        return [path for path in found if path.name.removesuffix(".compact").isdigit()]


@contextmanager
def arriving(producer: Producer, topic: str) -> Iterator[list[int]]:
    """Send numbers until it is left; a list with how many these are."""
    count, stop = [0], threading.Event()

    def send() -> None:
        while not stop.wait(0.2):
            numbers = range(count[0], count[0] + 100)
            producer.send_many(topic, [b"%d" % number for number in numbers])
            count[0] += len(numbers)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()
        producer.flush()


def test_an_archive_that_is_killed_at_any_time(
    broker: BrokerProcess, admin: Admin, producer: Producer, topic: str, tmp_path: Path
) -> None:
    skip_because_of(spark_session.missing())
    chance = random.Random()
    archive = Archive(broker, topic, tmp_path)
    try:
        with arriving(producer, topic) as count:
            for _ in range(_KILLS):
                before = archive.commits()

                def has_gone_on(before: int = before) -> bool:
                    archive.keep_running()
                    return archive.commits() > before

                wait_until(has_gone_on, "a commit", _PATIENCE)
                # Then at any step of the batches and compactions that follow.
                threading.Event().wait(chance.uniform(0, 6))
                archive.kill()
    finally:
        archive.kill()
    archive.finish()
    assert archive.values() == Counter(range(count[0]))
    done = archive.run(
        "audit", "--bootstrap", broker.bootstrap, "--topic", topic,
        "--archive", str(archive.path), "--json", *_SPARK,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["records"] == count[0]
