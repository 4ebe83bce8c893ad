"""Build the compiled codec where there is a compiler, and do without it where there is none."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

RECORDS = Path("qbus/records")


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


setup(
    ext_modules=[
        Extension(
            "qbus.records._codec",
            [str(RECORDS / "_codec.pyx")],
            depends=[str(part) for part in sorted(RECORDS.glob("_*.p[x]*"))],
            extra_compile_args=["-g0"],
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": Wheel},
)
