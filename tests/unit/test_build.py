"""The build: what setup.py compiles and leaves behind, and how often ``make`` has it compile."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
MyPyC = Callable[[Any, Path], list[Path]]
Compilation = Callable[[MyPyC], tuple[list[str], list[str]]]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return scratch


class Command:
    """A command of setuptools that does nothing: it is only there where packages are built."""

    inplace = False

    def __init__(self, build_lib: Path) -> None:
        self.build_lib = str(build_lib)
        self.warnings: list[str] = []

    def run(self) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``setup.py``, which sets nothing up."""

    def nothing(*_: object, **__: object) -> list[object]:
        return []

    tools = {"Distribution": object, "Extension": nothing, "find_packages": nothing}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(**tools, setup=nothing))
    monkeypatch.setitem(sys.modules, "setuptools.command", SimpleNamespace())
    for name in ("bdist_wheel", "build_ext", "build_py"):
        module = SimpleNamespace(**{name: Command})
        monkeypatch.setitem(sys.modules, f"setuptools.command.{name}", module)
    monkeypatch.chdir(ROOT)
    spec = spec_from_file_location("qbus_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = module_from_spec(spec)
    spec.loader.exec_module(setup)
    return setup


@pytest.fixture
def compilation(setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilation:
    """Compiles with another mypyc; the names of what came of it, and what was warned of."""

    def compile_with(mypyc: MyPyC) -> tuple[list[str], list[str]]:
        monkeypatch.setattr(setup, "_begin_mypyc", lambda *where: partial(mypyc, *where))
        command = setup.Compile(tmp_path / "lib")
        command.run()
        compiled = tmp_path / "lib" / "qbus" / "_compiled"
        return [path.name for path in compiled.glob("*")], command.warnings

    return compile_with


def test_what_was_compiled_is_taken_and_nothing_else_is_left(
    compilation: Compilation, scratch: Path
) -> None:
    def mypyc(_: Any, directory: Path) -> list[Path]:
        assert directory.parent == scratch
        (directory / "c").mkdir()
        (directory / "c" / "source.c").touch()
        (directory / "one.so").touch()
        return [directory / "one.so"]

    assert compilation(mypyc) == (["one.so"], [])
    assert [*scratch.iterdir()] == []


@pytest.mark.parametrize("error", [RuntimeError("no compiler"), SystemExit(1)])
def test_what_cannot_be_compiled_runs_as_python_and_leaves_nothing(
    compilation: Compilation, scratch: Path, error: BaseException
) -> None:
    def mypyc(_: Any, directory: Path) -> list[Path]:
        (directory / "half.c").touch()
        raise error

    warning = f"the hot modules are not compiled: {error}"
    assert compilation(mypyc) == ([], [warning])
    assert [*scratch.iterdir()] == []


def test_a_build_of_the_codec_alone_leaves_what_was_compiled_before(
    setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mypyc(*_: object) -> None:
        raise AssertionError("mypyc is begun")

    monkeypatch.setattr(setup, "_begin_mypyc", mypyc)
    monkeypatch.setattr(setup, "BUILD", "codec")
    library = tmp_path / "lib" / "qbus" / "_compiled" / "one.so"
    library.parent.mkdir(parents=True)
    library.touch()
    setup.Compile(tmp_path / "lib").run()
    assert library.exists()


def test_a_build_that_is_interrupted_leaves_nothing(
    compilation: Compilation, scratch: Path
) -> None:
    def mypyc(_: Any, directory: Path) -> list[Path]:
        (directory / "half.c").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compilation(mypyc)
    assert [*scratch.iterdir()] == []


def test_an_interrupted_build_leaves_no_half_library_nor_one_without_what_it_was_made_of(
    setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such libraries would count as installed, and run whatever becomes of the sources."""

    def interrupt(_: object, target: Path) -> None:
        target.write_text("half a library")
        raise KeyboardInterrupt

    table = SimpleNamespace(DIRECTORY="_compiled", STAMP="sources", stamp=lambda _: "as of now")
    monkeypatch.setattr(setup, "_compiled_modules", lambda: table)
    monkeypatch.setattr(setup, "_begin_mypyc", lambda _, where: lambda: [where / "one.so"])
    monkeypatch.setattr(shutil, "move", interrupt)
    monkeypatch.chdir(tmp_path)
    command = setup.Compile(tmp_path / "lib")
    command.inplace = True
    with pytest.raises(KeyboardInterrupt):
        command.run()
    compiled = tmp_path / "qbus" / "_compiled"
    assert (compiled / "sources").read_text() == "as of now"
    assert [*compiled.glob("*.so")] == []


_DEALLOC = """\
    PyObject_GC_UnTrack(self);
    if (walk_gen_free_instance == NULL) {
        walk_gen_free_instance = self;
        if (CPyTagged_CheckLong(self->start)) {
            self->start = CPY_INT_TAG;
        } else {
            self->start = CPY_INT_TAG;
        }
        Py_CLEAR(self->held);
        return;
    }
    CPy_TRASHCAN_BEGIN(self, walk_gen_dealloc)
"""
_STORE = """\
    if (cpy_r_self->held != NULL) {
        CPy_DECREF(cpy_r_self->held);
    }
    cpy_r_self->held = cpy_r_value;
"""


def test_freed_objects_are_kept_once_they_are_empty(setup: Any, tmp_path: Path) -> None:
    """Releasing what they hold may run Python, and other threads, which may take them."""
    source = tmp_path / "deep" / "native.c"
    source.parent.mkdir()
    source.write_text(_STORE + _DEALLOC * 2)
    setup._make_safe(tmp_path)
    safe = source.read_text().partition("PyObject_GC_UnTrack")[2].splitlines()
    assert [line.strip() for line in safe[1:14]] == [
        "if (walk_gen_free_instance == NULL) {",
        "if (CPyTagged_CheckLong(self->start)) {",
        "self->start = CPY_INT_TAG;",
        "} else {",
        "self->start = CPY_INT_TAG;",
        "}",
        "Py_CLEAR(self->held);",
        "if (walk_gen_free_instance == NULL) {",
        "walk_gen_free_instance = self;",
        "return;",
        "}",
        "}",
        "CPy_TRASHCAN_BEGIN(self, walk_gen_dealloc)",
    ]


@pytest.mark.parametrize(
    "code",
    [
        _STORE + _DEALLOC.replace("return;", "goto done;"),
        _STORE + _DEALLOC + _DEALLOC.replace("if (walk_gen_free_instance", "if (other_instance"),
        _STORE,
        _DEALLOC,
    ],
)
def test_nothing_is_compiled_of_c_that_is_not_known_to_be_safe(
    setup: Any, tmp_path: Path, code: str
) -> None:
    (tmp_path / "native.c").write_text(code)
    with pytest.raises(RuntimeError, match="than is known to be safe"):
        setup._make_safe(tmp_path)


def test_each_c_file_is_compiled_once_a_few_at_a_time(
    setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_BUNDLE_BYTES", 100)
    sources = []
    for number, size in enumerate((10, 250, 60, 30, 20, 40)):
        source = tmp_path / f"{number}.c"
        source.write_text("x" * size)
        sources.append(str(source))
    bundles = [
        Path(bundle).read_text().splitlines() for bundle in setup._bundles(sources, tmp_path)
    ]
    assert [len(bundle) for bundle in bundles] == [1, 2, 3]
    included = [line for bundle in bundles for line in bundle]
    assert sorted(included) == [f'#include "{source}"' for source in sources]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_is_done_beside_tells_its_result_or_why_there_is_none(
    setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert setup._beside(lambda: [1, 2])() == [1, 2]
    for error in (ImportError("no mypyc"), SystemExit(1)):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(RuntimeError, match=type(error).__name__):
            setup._beside(fail)()

    def refuse() -> int:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(RuntimeError, match="too many processes"):
        setup._beside(list)()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_compile_compiles_once(tmp_path: Path) -> None:
    """Whether what the installation depends on has changed, which compiles by itself, or not."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = tmp_path / "done"
    for name, says in ((".ci/venv", "install"), (".venv/bin/python", "compile")):
        script = tmp_path / name
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\necho {says} >> {done}\n")
        script.chmod(0o755)
    for name in ("setup.cfg", "pyproject.toml", "setup.py"):
        (tmp_path / name).touch()

    def made() -> list[str]:
        done.unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"]}  # and nothing of a make that runs the tests
        subprocess.run(
            ["make", "compile"],
            cwd=tmp_path,
            env=environment,
            check=True,
            timeout=60,
        )
        return done.read_text().split()

    assert made() == ["install"]
    assert made() == ["compile"]
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / ".venv" / ".run-ready", (an_hour_ago, an_hour_ago))  # setup.py is newer
    assert made() == ["install"]
    assert made() == ["compile"]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_demo_needs_the_codec_alone_compiled_and_what_is_there_serves_it(tmp_path: Path) -> None:
    """Everything takes minutes to compile, a demo seconds."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = tmp_path / "done"
    for name, says in (
        (".ci/venv", "set up ${QBUS_BUILD:-all} $1"),
        (".venv/bin/python", "python"),
        (".venv/bin/qbus", "qbus $*"),
    ):
        script = tmp_path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\necho "{says}" >> {done}\n')
        script.chmod(0o755)
    for name in ("setup.cfg", "pyproject.toml", "setup.py"):
        (tmp_path / name).touch()

    def made(*targets: str) -> list[str]:
        done.unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"]}  # and nothing of a make that runs the tests
        subprocess.run(["make", *targets], cwd=tmp_path, env=environment, check=True, timeout=60)
        return done.read_text().splitlines()

    assert made("demo") == ["set up codec ", "qbus demo"]
    assert made("demo") == ["qbus demo"]
    assert made("test")[0] == "set up all test,check"
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / "setup.py", (an_hour_ago, an_hour_ago))
    (tmp_path / ".venv" / ".demo-ready").unlink()
    (tmp_path / ".venv" / ".run-ready").unlink()
    assert made("compile") == ["set up all "]
    assert made("demo") == ["qbus demo"]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_compiles_anew_where_any_source_of_cython_changed() -> None:
    database = subprocess.run(
        ["make", "--print-data-base", "--question", "help"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    (rule,) = (line for line in database.splitlines() if line.startswith(".venv/.run-ready: "))
    sources = [path for folder in ("qbus", "broker") for path in (ROOT / folder).rglob("_*.px?")]
    cython = {str(path.relative_to(ROOT)) for path in sources}
    assert "qbus/_big_endian.pxd" in cython
    assert cython <= {*rule.split()}


_PYTHON_OF_A_SET_UP = """#!/bin/sh
case "$*" in
*--requirement*)
    trap 'echo >ended; kill $!; exit 1' TERM
    sleep 60 &
    echo >installing
    wait;;
*--editable*)
    echo >building
    exec sleep 60;;
esac
"""


_INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever runs the tests says of it
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_an_interrupt_ends_all_that_a_set_up_began(tmp_path: Path) -> None:
    """Else what the next one installs would be installed twice at the same time."""
    for name, text in (
        (".ci/venv", (ROOT / ".ci" / "venv").read_text()),
        (".venv/bin/python", _PYTHON_OF_A_SET_UP),
    ):
        script = tmp_path / name
        script.parent.mkdir(parents=True)
        script.write_text(text)
        script.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTIBLE, tmp_path / ".ci" / "venv"],
        process_group=0,
        stderr=subprocess.DEVNULL,
    )
    try:
        for name in ("installing", "building"):
            wait_until((tmp_path / name).exists, name)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        failed = process.wait(30)
        assert (tmp_path / "ended").exists()
        assert failed
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
