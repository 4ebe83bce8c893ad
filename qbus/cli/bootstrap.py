"""Where the cluster is: what `--bootstrap` takes."""

import click

DEFAULT = "127.0.0.1:9092"


def bootstrap(text: str) -> str:
    """Read ``HOST[:PORT],...`` or ``zk://HOST[:PORT],.../CHROOT``, kept as text for the clients."""
    from qbus.clients.net.bootstrap import parse
    from qbus.errors import ConfigError

    try:
        parse(text)
    except ConfigError as error:
        raise click.BadParameter(f"{error}.") from None
    return text
