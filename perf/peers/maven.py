"""Jars from Maven Central, fetched at first use and kept in the user's cache directory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_FETCH_SECONDS = 150


class Unavailable(Exception):  # noqa: N818 - it says why, it is no fault
    """A program cannot run here; the message says what is missing."""


class Artifact(NamedTuple):
    """A jar; ``is_alone``: without what it depends on. ``classifier``: which one of several."""

    group: str
    name: str
    version: str
    is_alone: bool = False
    classifier: str = ""


def fetched(folder: str, artifacts: Iterable[Artifact]) -> Path:
    """The directory of that name in the cache, with the jars and all that they need to run.

    Raises Unavailable without Java or Maven, or when Maven cannot get one of them.
    """
    jars = cache_root() / folder
    if not shutil.which("java"):
        raise Unavailable("java is not installed")
    if not jars.is_dir():
        _fetch(jars, artifacts)
    return jars


def fetched_first(choices: Mapping[str, Iterable[Artifact]]) -> Path:
    """As :func:`fetched`, the first that is there or can be had: artifacts by folder.

    What is there already goes before what would have to be fetched.
    """
    kept = [folder for folder in choices if (cache_root() / folder).is_dir()]
    reason = Unavailable("nothing to fetch")
    for folder in kept or choices:
        try:
            return fetched(folder, choices[folder])
        except Unavailable as unavailable:
            reason = unavailable
    raise reason


def cache_root() -> Path:
    """The directory of all that is fetched, in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "qbus"


def _fetch(jars: Path, artifacts: Iterable[Artifact]) -> None:
    if not shutil.which("mvn"):
        raise Unavailable("mvn is not installed")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as work:
        Path(work, "pom.xml").write_text(_pom(artifacts))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        try:
            subprocess.run(
                ["mvn", "-q", "-B", *goal],
                cwd=work,
                capture_output=True,
                check=True,
                timeout=_FETCH_SECONDS,
            )
        except subprocess.SubprocessError as error:
            raise Unavailable(f"mvn cannot fetch {jars.name}") from error
        # Whole or not at all; of two processes that fetch at once the first one's jars stay.
        if not jars.is_dir():
            Path(work, "jars").rename(jars)


def _pom(artifacts: Iterable[Artifact]) -> str:
    dependencies = "".join(map(_dependency, artifacts))
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>qbus</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _dependency(artifact: Artifact) -> str:
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{every}</exclusions>" if artifact.is_alone else ""
    which = f"<classifier>{artifact.classifier}</classifier>" if artifact.classifier else ""
    return (
        f"<dependency><groupId>{artifact.group}</groupId>"
        f"<artifactId>{artifact.name}</artifactId><version>{artifact.version}</version>"
        f"{which}{without}</dependency>"
    )
