"""The demo's report, for people."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbus.cli.output import table
from qbus.cli.units import format_size
from qbus.cli.version import describe

if TYPE_CHECKING:
    from rich.console import RenderableType


def report(account: dict[str, Any]) -> "RenderableType":
    """All measurements, and the result of the comparison."""
    from rich.console import Group

    return Group(
        "",
        _throughput(account),
        "",
        _latency(account),
        "",
        _files(account),
        "",
        _form(account["form"]),
        _broker(account),
        _members(account),
        _verdict(account),
    )


def next_steps(data_dir: str, log: str) -> str:
    """The commands to type next."""
    qbus = _command()
    return "\n".join(
        [
            "Next, a broker of your own:",
            f"  {qbus} broker --data-dir {shlex.quote(data_dir)}",
            "and in a second terminal:",
            f"  {qbus} topic create logs --partitions 3",
            f"  {qbus} produce logs {shlex.quote(log)}",
            f"  {qbus} consume logs --group readers --exit-at-end | tail",
            f"  {qbus} group describe readers",
        ]
    )


def _throughput(account: dict[str, Any]) -> "RenderableType":
    def row(what: str, seconds: float) -> tuple[str, ...]:
        seconds = max(seconds, 1e-6)
        return (
            what,
            f"{account['records']:,}",
            format_size(account["bytes"]),
            f"{seconds:.2f} s",
            f"{account['records'] / seconds:,.0f}",
            f"{format_size(account['bytes'] / seconds)}/s",
        )

    return table(
        "throughput",
        "#records",
        "#size",
        "#time",
        "#records/s",
        "#rate",
        rows=[
            row("produced (acks=all, on disk)", account["produce_seconds"]),
            row(f"consumed ({len(account['members'])} members)", account["consume_seconds"]),
        ],
    )


def _latency(account: dict[str, Any]) -> "RenderableType":
    names = ("p50", "p95", "p99", "max")
    return table(
        f"latency, {account['latency_records']:,} records one by one",
        *(f"#{name}" for name in names),
        rows=[
            (what, *(f"{account['latency_ms'][key][name]:.2f} ms" for name in names))
            for what, key in (
                ("sent to acknowledged", "acknowledged"),
                ("sent to consumed", "delivered"),
            )
        ],
    )


def _files(account: dict[str, Any]) -> "RenderableType":
    return table(
        "files on disk",
        "#segments",
        "#log",
        "#indexes",
        rows=[
            (
                files["directory"],
                files["segments"],
                format_size(files["log_bytes"]),
                format_size(files["index_bytes"]),
            )
            for files in account["files"]
        ],
    )


def _form(form: dict[str, Any]) -> str:
    if form["compiled"] and form["codec"] == "compiled":
        return "The broker and the clients ran compiled."
    return (
        f"The broker and the clients ran with: {describe(form)}."
        " In a checkout, `make compile` compiles all: a broker then takes less processor time."
    )


def _broker(account: dict[str, Any]) -> str:
    return (
        f"The broker listened {account['broker_start_seconds']:.2f} s after its process was"
        " started (a first start reads its files from disk and compiles its modules), used"
        f" {format_size(account['broker_idle_bytes'])} of memory idle and"
        f" {format_size(account['broker_loaded_bytes'])} at the end,"
        f" and stopped with exit code {account['broker_exit_code']}."
    )


def _members(account: dict[str, Any]) -> str:
    shares = (
        f"member {number} read partitions {', '.join(map(str, share)) or 'none'}"
        for number, share in enumerate(account["members"], 1)
    )
    return f"In the group, {' and '.join(shares)}."


def _verdict(account: dict[str, Any]) -> "RenderableType":
    from rich.text import Text

    times = f", {account['times']} times over" if account["times"] > 1 else ""
    what = f"{account['file']} ({format_size(account['file_bytes'])}){times}"
    if account["difference"] is None:
        return Text(
            f"Every byte of {what} came back, in order: SHA-256 {account['received_sha256']}.",
            style="bold green",
        )
    return Text(
        f"NOT the same as {what}: {account['difference']}. SHA-256 sent"
        f" {account['sent_sha256']}, received {account['received_sha256']}.",
        style="bold red",
    )


def _command() -> str:
    """The command to type to call this program again."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m qbus"
    if called.is_relative_to(Path.cwd()):
        return shlex.quote(str(called.relative_to(Path.cwd())))
    return "qbus" if shutil.which("qbus") == str(called) else shlex.quote(str(called))
