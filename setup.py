"""Build the compiled codec where there is a compiler, and do without it where there is none."""

from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

RECORDS = Path("qbus/records")
DISCOVERY = Path("clients/spark/discovery")


class Wheel(bdist_wheel):
    """A wheel for every machine, unless it holds the compiled codec."""

    def run(self) -> None:
        """Compile first, to know which it is."""
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


setup(
    packages=[*find_packages(include=["qbus*"]), "pyspark_qbus"],
    ext_modules=[
        Extension(
            "qbus.records._codec",
            [str(RECORDS / "_codec.pyx")],
            depends=[str(part) for part in sorted(RECORDS.glob("_*.p[x]*"))],
            extra_compile_args=["-g0"],
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": Wheel, "build_py": Discoverable},
)
