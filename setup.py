"""Compile what can be compiled where there is a compiler, and do without it where there is none."""

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import Pipe, get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

RECORDS = Path("qbus/records")
SHARED = [str(part) for part in sorted(Path("qbus").glob("_*.pxd"))]
DISCOVERY = Path("clients/spark/discovery")
BUILD = os.environ.get("QBUS_BUILD", "all")
"""What to compile: "all", "codec" (the record codec alone, in seconds), or "none"."""

if BUILD not in {"all", "codec", "none"}:
    raise SystemExit(f"QBUS_BUILD must be all, codec or none, got {BUILD}")

_BUNDLE_BYTES = 1 << 20
"""About how much C is compiled at once."""


class Wheel(bdist_wheel):
    """A wheel for every machine, unless it holds something compiled."""

    def run(self) -> None:
        """Compile first, to know which it is; nothing of an earlier build gets into it."""
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        self.run_command("build_ext")
        outputs = self.get_finalized_command("build_ext").get_outputs()
        if not any(Path(output).exists() for output in outputs):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


class Discoverable(build_py):
    """Lets Spark find our data source in an editable install too: it looks through folders alone.

    What else is editable is found by a hook of the import system, which Spark does not ask.
    """

    def run(self) -> None:
        """Have the folder with the module that Spark looks for among those of the import path."""
        super().run()
        if self.editable_mode:
            site_packages = self.get_finalized_command("install").install_lib
            Path(site_packages, "pyspark_qbus.pth").write_text(f"{DISCOVERY.resolve()}\n")


class Compile(build_ext):
    """Compiles what is written in Cython, and the hot modules with mypyc."""

    def run(self) -> None:
        """Compile each; what cannot be compiled runs as Python."""
        if BUILD != "all":  # what was compiled before runs while its sources are the same
            super().run()
            return
        table = _compiled_modules()
        root = Path() if self.inplace else Path(self.build_lib)
        directory = root / "qbus" / table.DIRECTORY
        shutil.rmtree(directory, ignore_errors=True)
        # From before: what changes while it is compiled does not count as compiled.
        stamp = table.stamp(".")
        with TemporaryDirectory(prefix="qbus-mypyc-") as scratch:
            finish = _begin_mypyc(table, Path(scratch))
            super().run()
            try:
                libraries = finish()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - no compiler, or a new Python
                self.warn(f"the hot modules are not compiled: {error}")
                return
            directory.mkdir(parents=True)
            if self.inplace:  # where sources may change; first, as what has no stamp is not checked
                (directory / table.STAMP).write_text(stamp)
            for library in libraries:
                half = directory / f"{library.name}.half"  # which is loaded by nobody
                shutil.move(library, half)
                half.rename(directory / library.name)

    def get_outputs(self) -> list[str]:
        """As of the base; what mypyc makes is known once it is there."""
        compiled = Path(self.build_lib, "qbus", _compiled_modules().DIRECTORY)
        return [*super().get_outputs(), *map(str, compiled.glob("*"))]


def _compiled_modules():
    """``qbus.compiled``, without what it decides for a process at its start."""
    spec = spec_from_file_location("qbus_compiled_table", "qbus/compiled.py")
    module = module_from_spec(spec)
    kept = os.environ.get("QBUS_COMPILED")
    os.environ["QBUS_COMPILED"] = "0"
    try:
        spec.loader.exec_module(module)
    finally:
        os.environ.pop("QBUS_COMPILED")
        if kept is not None:
            os.environ["QBUS_COMPILED"] = kept
    return module


class _InParallel(build_ext):
    """Compiles the many C files of one extension side by side."""

    def build_extensions(self) -> None:
        """As of the base."""
        compile_one = self.compiler.compile

        def compile_all(sources, **options):
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                objects = pool.map(lambda source: compile_one([source], **options), sources)
                return [one for made in objects for one in made]

        self.compiler.compile = compile_all
        super().build_extensions()


_STORED_LATE = re.compile(
    r"(?P<check> +if \([^\n;]+?->\w+ != NULL\) \{\n)?"
    r" +CPy_DECREF\((?P<attribute>[^\n;]+?->\w+)\);\n"
    r"(?(check) +\}\n)"
    r" +(?P=attribute) = (?P<value>[^\n;]+);\n"
)


def _store_first(code: str) -> str:
    """Have an attribute replaced before the object that it held is released.

    mypyc releases it first. Where that ends the object, and so closes a file, other threads run
    meanwhile, and would find the dead object in the attribute.
    """
    stored = (
        r"    {PyObject *replaced = (PyObject *)\g<attribute>;"
        "\n"
        r"    \g<attribute> = \g<value>;"
        "\n"
        r"    CPy_XDECREF(replaced);}"
        "\n"
    )
    return _STORED_LATE.sub(stored, code)


_KEPT_EARLY = re.compile(
    r"    if \((?P<slot>\w+_free_instance) == NULL\) \{\n"
    r"        (?P=slot) = self;\n"
    r"(?P<clears>(?:        [^\n]+\n)*?)"
    r"        return;\n"
    r"    \}\n"
)
_KEPT = re.compile(r"_free_instance = self;\n")


def _keep_last(code: str) -> str:
    """Have an object kept for reuse after what it held is released. Raises RuntimeError.

    mypyc keeps the last freed object of generators, coroutines and closures in a variable, and puts
    it there first. Where releasing what it held runs Python, or lets other threads run, they take
    the object, whose attributes are then cleared: a generator yields nothing, or says that an
    attribute is undefined.
    """
    kept = (
        r"    if (\g<slot> == NULL) {"
        "\n"
        r"\g<clears>"
        r"        if (\g<slot> == NULL) {"
        "\n"
        r"            \g<slot> = self;"
        "\n"
        r"            return;"
        "\n"
        r"        }"
        "\n"
        r"    }"
        "\n"
    )
    safe, changed = _KEPT_EARLY.subn(kept, code)
    if changed != len(_KEPT.findall(code)):
        raise RuntimeError("mypyc keeps freed objects in another way than is known to be safe")
    return safe


def _make_safe(directory: Path) -> None:
    """Change the C files below ``directory`` so. Raises RuntimeError if mypyc writes others now."""
    stored = kept = 0
    for source in directory.rglob("*.c"):
        code = source.read_text()
        safe = _store_first(code)
        stored += safe != code
        code, safe = safe, _keep_last(safe)
        kept += safe != code
        source.write_text(safe)
    if not stored:
        raise RuntimeError("mypyc stores attributes in another way than is known to be safe")
    if not kept:
        raise RuntimeError("mypyc keeps freed objects in another way than is known to be safe")


def _beside(work):
    """Begin what takes one processor in another process; the function that waits for its result.

    That raises RuntimeError if the work failed.
    """
    receiver, sender = Pipe(duplex=False)

    def run():
        try:
            sender.send((work(), ""))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other process raises it
            sender.send((None, f"{type(error).__name__}: {error}"))

    process = get_context("fork").Process(target=run, daemon=True)
    try:
        process.start()
    except OSError as error:  # too little memory, or too many processes
        sender.send((None, f"no process begins: {error}"))
    sender.close()

    def result():
        try:
            found, failure = receiver.recv()
        except EOFError:
            found, failure = None, "its process was ended"
        if process.pid is not None:
            process.join()
        if failure:
            raise RuntimeError(failure)
        return found

    return result


def _begin_mypyc(table, directory: Path):
    """Begin to compile the modules of ``table``; the function that ends that.

    It returns the libraries, in ``directory``.
    """

    def make_c() -> list[Extension]:
        from mypyc.build import mypycify  # noqa: PLC0415 - it may not be there

        return mypycify(
            # Types are checked elsewhere, where all that is imported is installed.
            ["--config-file=", "--ignore-missing-imports", *map(table.source_of, table.MODULES)],
            opt_level="1",  # twice as fast to compile as 3, and as fast to run
            debug_level="0",
            multi_file=True,
            group_name=table.LIBRARY,
            target_dir=str(directory / "c"),
        )

    made_c = _beside(make_c)
    return lambda: _compile(made_c(), table, directory)


def _compile(code: list[Extension], table, directory: Path) -> list[Path]:
    """Compile the C that mypyc made; the libraries."""
    _make_safe(directory / "c")
    command = _InParallel(Distribution({"ext_modules": _join(code, table, directory)}))
    command.parallel = os.cpu_count() or 1
    command.build_lib, command.build_temp = str(directory / "lib"), str(directory / "temp")
    command.ensure_finalized()
    command.run()
    return [*(directory / "lib").glob("*.so")]


def _join(code, table, directory: Path) -> list[Extension]:
    """The extensions that mypyc made, in few C files: to read the same headers takes most time.

    It made one with all code, and one for each module that only begins it there.
    """
    library, *modules = code
    written = [one for one in library.sources if Path(one).name.startswith("__native")]
    runtime = [one for one in library.sources if one not in written]
    library.sources = [*_bundles(written, directory), *runtime]
    openers = table.openers()
    lines: dict[str, list[str]] = {}
    for module in modules:
        (source,) = module.sources
        name = module.name.replace(".", "___")
        lines.setdefault(openers[module.name], []).extend(
            (
                f"#define PyInit___init__ PyInit___init___{name}",  # each has one, and needs none
                f'#include "{Path(source).resolve()}"',
                "#undef PyInit___init__",
            )
        )
    extensions = [library]
    for name, included in lines.items():
        source = directory / f"{name}.c"
        source.write_text("\n".join(included) + "\n")
        arguments = modules[0].extra_compile_args
        extensions.append(Extension(name, [str(source)], extra_compile_args=arguments))
    return extensions


def _bundles(sources: list[str], directory: Path) -> Iterator[str]:
    """C files that include the sources, a few in each; the largest first, so that all end soon."""
    bundle, size = [], 0
    for number, source in enumerate(sorted(sources, key=os.path.getsize, reverse=True)):
        bundle.append(f'#include "{Path(source).resolve()}"\n')
        size += Path(source).stat().st_size
        if size >= _BUNDLE_BYTES or number == len(sources) - 1:
            path = directory / f"bundle_{number}.c"
            path.write_text("".join(bundle))
            yield str(path)
            bundle, size = [], 0


EXTENSIONS = (
    (
        "qbus.records._codec",
        str(RECORDS / "_codec.pyx"),
        *(str(part) for part in sorted(RECORDS.glob("_*.p[x]*"))),
    ),
    (
        "qbus.records._compact",
        str(RECORDS / "_compact.pyx"),
        str(RECORDS / "_parse.pxd"),
        str(RECORDS / "_write.pxd"),
    ),
    (
        "qbus.records._header",
        str(RECORDS / "_header.pyx"),
        str(RECORDS / "_blocks.pxi"),
    ),
    ("qbus.wire._lean", "qbus/wire/_lean.pyx"),
    (
        "qbus.broker.group._offset_table",
        "qbus/broker/group/_offset_table.pyx",
        str(RECORDS / "_write.pxd"),
    ),
)
"""Name, source and what else is read of each extension in Cython."""

setup(
    packages=[*find_packages(include=["qbus*"]), "pyspark_qbus"],
    ext_modules=[
        Extension(
            name, [source], depends=[*parts, *SHARED], extra_compile_args=["-g0"], optional=True
        )
        for name, source, *parts in EXTENSIONS
        if BUILD == "all" or (BUILD == "codec" and name == "qbus.records._codec")
    ],
    cmdclass={"bdist_wheel": Wheel, "build_ext": Compile, "build_py": Discoverable},
)
