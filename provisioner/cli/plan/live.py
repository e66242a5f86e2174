"""The objects of a live cluster, read and nothing else."""

from contextlib import closing
from typing import Any, Final

from provisioner.cli.plan.objects import MAX_OBJECTS, TAKEN, InputProblem, PlanObjects, problem_of
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.resources import Resource
from provisioner.kube.survey import Unreadable, surveyed
from provisioner.support.clock import Clock
from provisioner.values.errors import UndeterminedError

_NEEDED: Final = frozenset({resources.PODS, resources.NODES})


def read(objects: PlanObjects, kubeconfig: str, context: str, clock: Clock) -> None:
    """Take everything that a plan depends on. A kind that may not be read, or that the cluster does not have, is left out.

    Raises:
        UndeterminedError: the cluster cannot be reached, or its pods or nodes may not be read.
        ConfigError: the kubeconfig cannot be used.
    """
    with closing(connect(kubeconfig or None, user_agent="dovetail-plan", clock=clock, context=context)) as connection:
        take(objects, Client(connection, clock), f"cluster {connection.host}")


def take(objects: PlanObjects, client: Client, name: str) -> None:
    """Take everything from the server that `client` asks.

    Raises:
        UndeterminedError: as of `read`.
    """
    for kind in TAKEN:
        try:
            _list(objects, client, kind, name)
        except NotFound:
            continue  # a CRD that is not installed
        except Forbidden:
            if kind in _NEEDED:
                text = f"{kind} may not be read in {name}. Grant this user the verbs get and list on {kind}"
                raise UndeterminedError(text) from None
            objects.complain(
                InputProblem(name, kind.kind, "", f"may not be read; grant this user the verb list on {kind}")
            )
        except ApiError as error:
            if kind in _NEEDED:
                text = f"{kind} could not be read in {name}: {error}. Check the kubeconfig and the connection"
                raise UndeterminedError(text) from None
            objects.complain(InputProblem(name, kind.kind, "", f"could not be read: {error}; try again"))


def _list(objects: PlanObjects, client: Client, kind: Resource[Any], name: str) -> None:
    """Every object of a kind, page by page; one that cannot be read stops no other."""
    for one in surveyed(client, kind, decode=kind.decode):
        objects.count += 1
        if objects.count > MAX_OBJECTS:
            raise UndeterminedError(f"{name} exceeds the limit of {MAX_OBJECTS:,} objects that a plan depends on")
        if isinstance(one, Unreadable):
            objects.complain(problem_of(name, f"{kind.kind} {one.key or '(without a name)'}", one.error))
        else:
            objects.add(name, kind, one)
