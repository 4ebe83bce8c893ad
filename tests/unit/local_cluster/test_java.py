"""Java and the jars of PySpark on this machine."""

import pytest

from qbus.local_cluster.java import java_version


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command failed", None),
    ],
)
def test_versions_of_java(told: str, version: int | None) -> None:
    assert java_version(told) == version
