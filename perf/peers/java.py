"""Apache Kafka's jars from Maven Central, and Java programs run from them."""

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from perf.peers.maven import Artifact, Unavailable, fetched

__all__ = [
    "KAFKA_VERSION",
    "SCRIPT_OPTIONS",
    "SHORT_RUN_OPTIONS",
    "Unavailable",
    "classpath",
    "command",
    "live_heap",
    "run",
]

#: The newest release that Maven Central holds whole.
KAFKA_VERSION = "4.3.1"

_DEPENDENCIES = (
    Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Artifact("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
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
_USED_HEAP = re.compile(rb"heap.* used (\d+)K")
_LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def command(
    main_class: str,
    *arguments: str,
    heap: str = "256M",
    options: Sequence[str] = SCRIPT_OPTIONS,
    jars: Path | None = None,
) -> list[str]:
    """Return the command line that runs a class of Kafka's; raise Unavailable when it cannot.

    ``jars``: the directory of other jars, to be used instead.
    """
    heaps = (f"-Xmx{heap}", f"-Xms{heap}") if heap.endswith("G") else (f"-Xmx{heap}",)
    java = ["java", *heaps, *options, _LOGGING]
    java += ["-cp", f"{jars}/*" if jars else classpath()]
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


def live_heap(pid: int) -> int:
    """Return how many bytes the objects take that live in a JVM."""
    for order in ("GC.run", "GC.heap_info"):
        command = ["jcmd", str(pid), order]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    used = _USED_HEAP.search(done.stdout)
    assert used is not None, done.stdout
    return int(used[1]) * 1024


@cache
def classpath() -> str:
    """Return the class path of Kafka's broker and tools, fetched at first use.

    The jars stay in the user's cache directory. Raises Unavailable without Java or Maven, or when
    Maven cannot reach its repository.
    """
    return f"{fetched(f'kafka-{KAFKA_VERSION}', _DEPENDENCIES)}/*"
