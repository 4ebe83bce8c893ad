"""rsyslog as a peer of the agent: ``imfile`` to ``omkafka``, of Debian's rsyslog and rsyslog-kafka.

They are installed, or unpacked (``dpkg -x``) with what they need into the directory that
``QBUS_RSYSLOG`` names.
"""

import os
import shutil
import subprocess
from pathlib import Path

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def missing() -> str | None:
    """Return why rsyslog cannot run here, or None when it can."""
    if _program() is None:
        return "there is no rsyslogd, neither installed nor below $QBUS_RSYSLOG"
    if not (_modules() / "omkafka.so").exists():
        return f"there is no omkafka.so in {_modules()}: it is in the package rsyslog-kafka"
    return None


def start(
    directory: Path, pattern: str, bootstrap: str, topic: str, record_start: str | None = None
) -> "subprocess.Popen[bytes]":
    """Ship the files that match a glob, over a fresh state in ``directory``.

    ``record_start``: a regular expression of lines that begin records of several lines.
    """
    program = _program()
    assert program is not None
    (directory / "state").mkdir()
    lines = "" if record_start is None else f'startmsg.regex="{record_start}" escapeLF="off"'
    config = directory / "rsyslog.conf"
    config.write_text(f"""
global(workDirectory="{directory}/state" maxMessageSize="64k")
module(load="imfile" mode="inotify")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{pattern}" tag="perf" ruleset="ship" {lines})
ruleset(name="ship" queue.type="FixedArray" queue.size="100000" queue.dequeueBatchSize="2048") {{
  action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="line"
         confParam=["compression.codec=lz4", "enable.idempotence=true", "linger.ms=5",
                    "queue.buffering.max.messages=1000000"])
}}
""")
    command = [
        program,
        "-n",
        "-f",
        str(config),
        "-i",
        str(directory / "pid"),
        "-M",
        str(_modules()),
    ]
    environment = dict(os.environ)
    if root := os.environ.get("QBUS_RSYSLOG"):
        environment["LD_LIBRARY_PATH"] = str(Path(root, _LIBRARIES))
    with (directory / "rsyslog.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _program() -> str | None:
    root = os.environ.get("QBUS_RSYSLOG")
    places = f"{root}/usr/sbin" if root else f"{os.environ.get('PATH', '')}:/usr/sbin"
    return shutil.which("rsyslogd", path=places)


def _modules() -> Path:
    return Path(os.environ.get("QBUS_RSYSLOG", "/"), _LIBRARIES, "rsyslog")
