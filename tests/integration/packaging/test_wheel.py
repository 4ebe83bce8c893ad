"""Qbus installed as its users do: the wheel, an empty environment, no compiler and no extras."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SOURCES = ("qbus", "broker", "clients", "agent", "setup.cfg", "setup.py", "pyproject.toml")
PAPERS = ("README.md", "LICENSE")
NO_COMPILER = {"CC": "false", "CXX": "false", "PYTHONPATH": ""}


class InstalledBroker(BrokerProcess):
    """``qbus broker`` as the environment has it."""

    def __init__(self, environment: Path, data_dir: Path) -> None:
        super().__init__(data_dir, env={"PYTHONPATH": ""})
        self._command = str(environment / "bin" / "qbus")

    def command(self) -> list[str]:
        """Return the command line, without the Python that runs the tests."""
        return [self._command, "broker", "--data-dir", str(self.data_dir), "--listen"] + [
            self.bootstrap
        ]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where there is no compiler."""
    environment = {**os.environ, **NO_COMPILER}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def done(*command: str | Path, cwd: Path) -> str:
    """Run a command that is to succeed; what it printed."""
    result = run(*command, cwd=cwd)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def copy_sources(to: Path) -> Path:
    """Copy what a wheel is built from: a build leaves things behind."""
    to.mkdir()
    compiled = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    for name in (*SOURCES, *PAPERS):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True, ignore=compiled)
        elif source.exists():
            shutil.copy(source, to / name)
    return to


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing in it but the wheel and what it requires."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    environment = directory / "environment"
    venv.create(environment, symlinks=True)
    into = (*pip, "--python", environment, "install", "--quiet")
    probe = run(*into, "click", cwd=directory)
    if probe.returncode:
        pytest.skip(f"pip reaches no index: {probe.stderr.strip().splitlines()[-1]}")
    sources = copy_sources(directory / "sources")
    done(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, sources, cwd=directory)
    (wheel,) = directory.glob("qbus-*.whl")
    done(*into, wheel, cwd=directory)
    return environment


def python(environment: Path, code: str) -> str:
    """Run code in the environment, away from the sources; what it printed."""
    return done(environment / "bin" / "python", "-W", "error", "-c", code, cwd=environment).strip()


def test_only_what_the_wheel_requires_is_there(environment: Path) -> None:
    code = """if True:
        import importlib.util as util
        import qbus
        print(qbus.__file__)
        print([name for name in ("pyarrow", "kazoo", "pytest", "Cython") if util.find_spec(name)])
    """
    file, extras = python(environment, code).splitlines()
    assert Path(file).is_relative_to(environment)
    assert extras == "[]"


def test_every_module_is_there_and_no_other(environment: Path) -> None:
    (installed,) = environment.glob("lib/python*/site-packages/qbus")
    sources = {path.relative_to(ROOT / "qbus") for path in (ROOT / "qbus").glob("**/*.py")}
    for package in ("broker", "clients", "agent"):
        sources |= {path.relative_to(ROOT) for path in (ROOT / package).glob("**/*.py")}
    apart = {path for path in sources if "pyspark_qbus" in path.parts}  # is put beside qbus
    found = {path.relative_to(installed) for path in installed.glob("**/*.py")}
    assert found == sources - apart


def test_nothing_but_qbus_is_put_beside_other_packages(environment: Path) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    assert not {"broker", "clients", "agent", "tests", "perf"} & {
        path.name for path in packages.iterdir()
    }


def test_spark_finds_its_module_which_never_fails_to_import(environment: Path) -> None:
    code = """if True:
        from pkgutil import iter_modules
        print("pyspark_qbus" in [module.name for module in iter_modules()])
        import pyspark_qbus
        print(hasattr(pyspark_qbus, "DefaultSource"))
    """
    assert python(environment, code).split() == ["True", "False"]


def test_without_a_compiler_the_codec_is_plain_python(environment: Path) -> None:
    assert python(environment, "from qbus.records import CODEC; print(CODEC)") == "python"
    assert "python" in done(environment / "bin" / "qbus", "version", cwd=environment)


def test_a_record_goes_through_an_installed_broker(environment: Path, tmp_path: Path) -> None:
    code = """if True:
        from qbus import Consumer, Producer
        with Producer({bootstrap!r}) as producer:
            producer.send("topic", b"value", key=b"key")
            producer.send_many("topic", [b"more"] * 999)
        with Consumer({bootstrap!r}) as consumer:
            consumer.assign([("topic", 0, 0)])
            records = [record for _, record in zip(range(1000), consumer)]
        print(records[0].key, records[0].value, len(records), records[-1].offset)
    """
    with InstalledBroker(environment, tmp_path / "data") as broker:
        printed = python(environment, code.format(bootstrap=broker.bootstrap))
    assert printed == "b'key' b'value' 1000 999"


@pytest.mark.parametrize(
    ("extra", "use"),
    [
        ("arrow", "Consumer('127.0.0.1:9').poll_arrow(0)"),
        ("arrow", "Producer('127.0.0.1:9').send_arrow('topic', None)"),
        ("zookeeper", "Admin('zk://127.0.0.1:9/qbus').list_topics()"),
        ("spark", "from qbus.clients.spark import QbusDataSource"),
    ],
)
def test_an_error_names_the_missing_extra(environment: Path, extra: str, use: str) -> None:
    code = f"""if True:
        from qbus import Admin, Consumer, Producer, QbusError
        try:
            {use}
        except QbusError as error:
            print(error)
    """
    assert f"{environment}/bin/python -m pip install 'qbus[{extra}]'" in python(environment, code)
