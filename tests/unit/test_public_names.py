"""What users import, and what importing it costs."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import qbus


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_qbus_imports_neither_asyncio_nor_the_clients() -> None:
    modules = modules_after("import qbus")
    assert not modules & {"asyncio", "qbus.clients", "qbus.errors", "qbus.records"}


def test_errors_come_without_the_clients() -> None:
    modules = modules_after("from qbus import QbusError, ErrorCode")
    assert not modules & {"asyncio", "qbus.clients"}


@pytest.mark.parametrize("name", qbus.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(qbus, name) is not None
    assert name in dir(qbus)


@pytest.mark.parametrize("package", ["qbus.clients", "qbus.aio"])
def test_every_name_of_the_asyncio_clients_is_there(package: str) -> None:
    home = import_module(package)
    for name in home.__all__:
        assert getattr(home, name) is not None
        assert name in dir(home)


@pytest.mark.parametrize("package", ["qbus", "qbus.aio"])
@pytest.mark.parametrize(
    ("client", "others"),
    [
        ("Producer", ("consumer", "admin.admin", "share", "queue")),
        ("Consumer", ("producer", "admin.admin", "share", "queue")),
    ],
)
def test_a_client_comes_without_the_others(
    package: str, client: str, others: tuple[str, ...]
) -> None:
    modules = modules_after(f"from {package} import {client}")
    assert not modules & {f"qbus.clients.{other}" for other in others}
    assert "urllib.request" not in modules


def test_spark_looks_the_format_up_without_any_client() -> None:
    pytest.importorskip("pyspark")
    modules = modules_after("import pyspark_qbus; pyspark_qbus.DefaultSource")
    assert not modules & {"qbus.clients.producer", "qbus.clients.consumer", "qbus.clients.admin"}


def test_a_name_is_the_same_object_wherever_it_is_imported_from() -> None:
    from qbus.clients.types import TopicPartition
    from qbus.errors import ApiError

    assert qbus.TopicPartition is TopicPartition
    assert qbus.ApiError is ApiError


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        _ = qbus.Broker  # type: ignore[attr-defined]


def test_asyncio_clients_have_a_module_of_their_own() -> None:
    from qbus import aio, clients

    assert aio.Producer is clients.Producer
    assert aio.Consumer is clients.Consumer
    assert aio.Admin is clients.Admin


DOCS = Path(__file__).parents[2] / "docs"
IMPORTS = sorted(
    {
        line
        for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
        for line in re.findall(r"^(?:from|import) qbus\b.*$", page.read_text(), re.MULTILINE)
        if "(" not in line
    }
)


@pytest.mark.parametrize("line", IMPORTS)
def test_what_the_pages_import_is_there(line: str) -> None:
    if "spark" in line:
        pytest.importorskip("pyspark")
    exec(line, {})
