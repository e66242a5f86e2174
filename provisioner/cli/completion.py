"""What a shell proposes: commands, options, their values, and names of objects in the cluster, which is asked for a short time only.

click finds out what may stand at a place; here is what it does not know. kubectl's way of asking a plugin is `kubectl_complete`.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

VARIABLE: Final = "_DOVETAIL_COMPLETE"
"""Environment variable by which a shell's script asks."""
SECONDS: Final = 2.0
"""For the names of one kind, however many programs give the credentials."""
_MOST: Final = 1000
_PODS: Final = "/api/v1/namespaces/{namespace}/pods"
_ALL_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_NAMESPACES: Final = "/api/v1/namespaces"
_NO_FILES: Final = 4
"""ShellCompDirectiveNoFileComp of cobra, which kubectl is made with."""
_FILES: Final = 0


def contexts_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Contexts of the kubeconfig."""

    def ask() -> list[str]:
        from provisioner.kube.config import context_names  # noqa: PLC0415 - likewise

        return context_names(ctx.params.get("kubeconfig") or None)

    return _within_time(ask, incomplete)


def namespaces_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Namespaces of the cluster."""
    return _within_time(lambda: [name for _, name in _listed(ctx, _NAMESPACES)], incomplete)


def nodes_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Nodes and NodeClaims of the cluster."""
    return _within_time(
        lambda: sorted({name for path in (_NODES, _CLAIMS) for _, name in _listed(ctx, path)}), incomplete
    )


def pods_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Pods of the namespace that is meant; NAMESPACE/NAME once there is a slash."""
    if "/" in incomplete:
        return _within_time(lambda: [f"{space}/{name}" for space, name in _listed(ctx, _ALL_PODS)], incomplete)
    return _within_time(lambda: [name for _, name in _listed(ctx, _PODS)], incomplete)


def _within_time(ask: Callable[[], list[str]], incomplete: str) -> list[str]:
    """What is found within `SECONDS`; nothing where the cluster cannot be asked: a shell has no place for errors."""
    found: list[str] = []

    def look() -> None:
        try:
            found.extend(ask())
        except Exception:  # noqa: BLE001 - whatever it is, the user is typing
            return

    thread = threading.Thread(target=look, name="completion", daemon=True)
    thread.start()
    thread.join(SECONDS)
    return [one for one in sorted(found) if one.startswith(incomplete)]


def _listed(ctx: click.Context, path: str) -> list[tuple[str, str]]:
    """Namespace and name of the first objects."""
    from provisioner.kube.client import METADATA_ONLY, read_page  # noqa: PLC0415 - only when a shell asks
    from provisioner.kube.config import connect  # noqa: PLC0415
    from provisioner.kube.resources import identity_in  # noqa: PLC0415

    given = ctx.params
    with closing(
        connect(given.get("kubeconfig") or None, context=given.get("context") or "", user_agent="dovetail-completion")
    ) as connection:
        whole = path.format(namespace=given.get("namespace") or connection.namespace)
        answer = connection.request(
            "GET", f"{whole}?limit={_MOST}", headers=METADATA_ONLY, read_timeout=SECONDS, total_timeout=SECONDS
        )
        page = read_page(answer.data, whole)
        return [(one.namespace, one.name) for one in map(identity_in, page.items or ())]


@click.command(
    "completion",
    help="""Print the completion script for a shell.

    In bash: source <(dovetail completion bash). In zsh: source <(dovetail completion zsh). In fish: dovetail completion fish | source.
    Names of pods, nodes and namespaces are those of the current cluster.
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """See `dovetail completion --help`."""
    kind: Any = get_completion_class(shell)
    script = kind(click.get_current_context().find_root().command, {}, "dovetail", VARIABLE)
    # not `source()`, which starts bash to see how old it is
    click.echo(script.source_template % script.source_vars())


def proposals(root: click.Command, arguments: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """What may stand behind these arguments, beginning with `incomplete`."""
    return ShellComplete(root, {}, "dovetail", VARIABLE).get_completions(list(arguments), incomplete)


def kubectl_complete(root: click.Command, arguments: Sequence[str]) -> str:
    """The answer to kubectl, which asks with all words, the last of them unfinished.

    Source: https://kubernetes.io/docs/reference/kubectl/generated/kubectl_plugin; cobra's `__complete`.
    """
    words = list(arguments) or [""]
    items = proposals(root, words[:-1], words[-1])
    plain = [one for one in items if one.type == "plain"]
    lines = [f"{one.value}\t{one.help}" if one.help else str(one.value) for one in plain]
    return "\n".join([*lines, f":{_NO_FILES if len(plain) == len(items) else _FILES}"])


def main() -> None:
    """Entry point of `kubectl_complete-dovetail`."""
    from provisioner.cli.main import dovetail  # noqa: PLC0415 - it imports this module

    sys.stdout.write(f"{kubectl_complete(dovetail, sys.argv[1:])}\n")
