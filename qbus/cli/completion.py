"""`qbus completion`: the shells' own completion, made by click."""

import click

#: Where each shell looks, so that completion is there in every new shell.
_HINTS = {
    "bash": "qbus completion bash > ~/.local/share/bash-completion/completions/qbus",
    "zsh": 'qbus completion zsh > "${fpath[1]}/_qbus"',
    "fish": "qbus completion fish > ~/.config/fish/completions/qbus.fish",
}


@click.command(
    epilog="\b\nTo keep it:\n" + "\n".join(f"  {hint}" for hint in _HINTS.values()),
)
@click.argument("shell", type=click.Choice(tuple(_HINTS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete qbus commands and options."""
    from click.shell_completion import get_completion_class

    from qbus.cli.failures import Failure

    kind = get_completion_class(shell)
    assert kind is not None
    try:
        script = kind(context.find_root().command, {}, "qbus", "_QBUS_COMPLETE").source()
    except RuntimeError as error:
        raise Failure(str(error)) from error
    click.echo(script)
