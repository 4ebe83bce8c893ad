"""Apache Kafka's jars from Maven Central, and Java programs run from them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

#: The newest release that Maven Central holds whole.
KAFKA_VERSION = "4.3.1"

_DEPENDENCIES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
#: The options of Kafka's start scripts.
SCRIPT_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
#: For a tool that ends at once: less compiling halves what it costs.
SHORT_RUN_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_FETCH_SECONDS = 150
_LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class Unavailable(Exception):  # noqa: N818 - it says why, it is no fault
    """Kafka cannot run here; the message says what is missing."""


def command(
    main_class: str,
    *arguments: str,
    heap: str = "256M",
    options: Sequence[str] = SCRIPT_OPTIONS,
) -> list[str]:
    """Return the command line that runs a class of Kafka's; raise Unavailable when it cannot."""
    heaps = (f"-Xmx{heap}", f"-Xms{heap}") if heap.endswith("G") else (f"-Xmx{heap}",)
    java = ["java", *heaps, *options, _LOGGING, "-cp", classpath()]
    return [*java, main_class, *arguments]


def run(
    main_class: str,
    *arguments: str,
    stdin: bytes = b"",
    timeout: float = 120.0,
    heap: str = "512M",
    options: Sequence[str] = SCRIPT_OPTIONS,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a class of Kafka's to its end and return its code and output."""
    return subprocess.run(
        command(main_class, *arguments, heap=heap, options=options),
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


@cache
def classpath() -> str:
    """Return the class path of Kafka's broker and tools, fetched at first use.

    The jars stay in the user's cache directory. Raises Unavailable without Java or Maven, or when
    Maven cannot reach its repository.
    """
    jars = _cache_root() / f"kafka-{KAFKA_VERSION}"
    if not shutil.which("java"):
        raise Unavailable("java is not installed")
    if not jars.is_dir():
        _fetch(jars)
    return f"{jars}/*"


def _cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "qbus"


def _fetch(jars: Path) -> None:
    if not shutil.which("mvn"):
        raise Unavailable("mvn is not installed")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as work:
        Path(work, "pom.xml").write_text(_pom())
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
            raise Unavailable(f"mvn cannot fetch Kafka {KAFKA_VERSION}") from error
        # Whole or not at all; of two processes that fetch at once the first one's jars stay.
        if not jars.is_dir():
            Path(work, "jars").rename(jars)


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in _DEPENDENCIES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>qbus</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
