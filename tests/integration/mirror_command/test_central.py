"""A mirror controlled by ZooKeeper: configured live, with its status there."""

import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.mirror_command import MirrorCommand
from tests.support.waiting import until
from tests.support.zookeeper_process import ZooKeeperProcess

from .clusters import create, end_of, write

pytestmark = pytest.mark.integration


async def command(*arguments: str) -> tuple[int | None, str, str]:
    """The exit code, standard output and standard error of ``qbus mirror``."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qbus", "mirror", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()


async def test_two_processes_follow_one_configuration_and_tell_of_themselves(
    zookeeper: ZooKeeperProcess, source: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    for topic in ("told", "untold"):
        await create(source, topic, partitions=2)
        await write(source, topic, [b"v"] * 10, 1)
    file = tmp_path / "mirror.toml"
    good = (
        f'topics = ["told"]\n[target]\nidc = "b"\nbootstrap = "{target.bootstrap}"\n'
        f'[[source]]\nidc = "a"\nbootstrap = "{source.bootstrap}"\n'
    )
    place = ("--zookeeper", f"{zookeeper.bootstrap}/{uuid4()}")

    async def put(text: str) -> tuple[int | None, str, str]:
        file.write_text(text)
        return await command("config", "set", "to-b", str(file), *place)

    async def processes() -> dict[str, int]:
        """The versions of the configuration that processes have in force."""
        code, stdout, _ = await command("status", *place, "--link", "to-b", "--json", "--once")
        assert code == 0
        found = json.loads(stdout)["processes"]
        return {one["process"]: one["configuration"]["version"] for one in found}

    assert (await put(good))[0] == 0
    options = (*place, "--link", "to-b")
    with MirrorCommand(*options, "--name", "one"), MirrorCommand(*options, "--name", "two"):
        await until(lambda: end_of(target, "a.told", 1), 10)
        await until(processes, {"one": 0, "two": 0})
        code, _, stderr = await put(good + "relay = 3\n")
        assert code == 1
        assert "source[1].relay = 3: expected true or false" in stderr
        assert (await put(good.replace('"told"', '"told", "untold"')))[0] == 0
        await until(lambda: end_of(target, "a.untold", 1), 10)
        await until(processes, {"one": 1, "two": 1})
    nobody: dict[str, int] = {}
    await until(processes, nobody)
    code, stdout, _ = await command("config", "get", "to-b", *place)
    assert 'topics = ["told", "untold"]' in stdout
