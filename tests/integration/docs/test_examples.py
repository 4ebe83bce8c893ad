"""The pages about the SDK and the examples do what they say, against a running broker."""

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = DOCS / "examples"
ADDRESS = "127.0.0.1:9092"
PAGES = [page for page in sorted((DOCS / "sdk").glob("*.md")) if "```python" in page.read_text()]

needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

_names = (f"examples-{number}" for number in itertools.count())

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with its defaults, as the reader of a page has it."""
    with BrokerProcess(tmp_path_factory.mktemp("examples")) as broker:
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Run an example against the broker; the lines that it printed."""

    def run_example(name: str, *arguments: str, stdin: bytes = b"") -> list[str]:
        return _run(str(EXAMPLES / name), bootstrap, *arguments, stdin=stdin)

    return run_example


def _run(*arguments: str, stdin: bytes = b"") -> list[str]:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=needs_arrow if p.stem == "arrow" else ()) for p in PAGES],
    ids=lambda page: page.name,
)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, bootstrap: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    # That one starts a container: tests/cluster/test_compose.py does as it does, where it can.
    blocks = [block for block in blocks if "qbus.testing" not in block]
    assert _run("-c", "\n".join(blocks).replace(ADDRESS, bootstrap))


def test_every_example_is_run_here_and_listed() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert set(re.findall(r'run\(\s*"(\w+\.py)"', Path(__file__).read_text())) == names
    assert set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())) == names


def test_lines_are_produced_and_worked_on_by_a_group(run: Run) -> None:
    topic = next(_names)
    lines = b"".join(b"line %d\n" % number for number in range(500))
    assert run("produce_lines.py", topic, stdin=lines) == ["500 of 500 lines delivered"]
    worked = run("work_in_a_group.py", topic, "workers")
    assert worked == [f"0 {number} {f'line {number}'.encode()!r}" for number in range(500)]
    assert run("work_in_a_group.py", topic, "workers") == []
    report = run("lag_report.py")
    assert "workers Empty 0" in report
    assert f"  {topic} 0 500 0" in report


def test_a_topic_is_copied(run: Run) -> None:
    source, target = next(_names), next(_names)
    run("produce_lines.py", source, stdin=b"one\ntwo\n")
    assert run("copy_with_asyncio.py", source, target, "copiers") == ["2 records copied"]
    copied = run("work_in_a_group.py", target, "readers-of-the-copy")
    assert copied == ["0 0 b'ONE'", "0 1 b'TWO'"]


def test_a_topic_is_moved_in_transactions(run: Run) -> None:
    source, target = next(_names), next(_names)
    run("produce_lines.py", source, stdin=b"one\ntwo\n")
    assert run("move_in_transactions.py", source, target, "mover") == ["2 records moved"]
    assert run("move_in_transactions.py", source, target, "mover") == ["0 records moved"]
    moved = run("work_in_a_group.py", target, "readers-of-what-moved")
    assert [line.split()[2] for line in moved] == ["b'ONE'", "b'TWO'"]


@needs_arrow
def test_columns_go_there_and_back(run: Run) -> None:
    counts = [line.split() for line in run("arrow_columns.py", next(_names))]
    assert [host for host, _ in counts] == [f"host-{number}" for number in range(7)]
    assert sum(int(count) for _, count in counts) == 100_000
