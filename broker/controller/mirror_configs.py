"""What may be changed of the configuration that makes a topic a mirror.

A topic is made a mirror when it is created, because where offsets decide, a log that has records of
its own already would pass for one that is ahead. It may cease to be one, at any time and for good:
then producers here go on where the mirror ended. That it was one stays known, since its offsets may
have gaps.
"""

from collections.abc import Mapping

from qbus.errors import ConfigError

SOURCE = "qbus.mirror.source"
FORMER_SOURCE = "qbus.mirror.former.source"
KEYS = frozenset({SOURCE, FORMER_SOURCE, "qbus.mirror.topic.id", "qbus.mirror.path"})


def settle(current: Mapping[str, str], edited: Mapping[str, str]) -> dict[str, str]:
    """What a topic's configuration becomes that was ``current`` and is ``edited``.

    Raises:
        ConfigError: the topic cannot become a mirror, that of another IDC, or deny that it was one.
    """
    settled = dict(edited)
    before, source = current.get(SOURCE, "").strip(), edited.get(SOURCE, "").strip()
    if source and source != before:
        raise ConfigError(
            f"{SOURCE}={source}: only a new topic becomes a mirror;"
            " delete this one, or mirror under another name"
        )
    if edited.get(FORMER_SOURCE, "") != current.get(FORMER_SOURCE, ""):
        raise ConfigError(f"{FORMER_SOURCE} cannot be changed; only the broker sets it")
    if not source:
        settled.pop(SOURCE, None)
        if before:
            settled[FORMER_SOURCE] = before
    return settled
