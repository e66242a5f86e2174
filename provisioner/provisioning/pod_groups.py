"""PodGroups, which by default no API server has: what is known of them decides which of their pods wait for a node.

Those of Kubernetes, of Volcano and of the coscheduling plugin are found and watched each by themselves. Where they may not be read, or their watch
fails, nobody waits for them for ever: see `state.groups`.
"""

from provisioner.apis.gangs import GroupSource
from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.runtime.late_watch import LateWatch
from provisioner.state.knowledge import KindKnowledge
from provisioner.support import logs

_log = logs.get_logger(__name__)


def pod_group_controllers(base: Base) -> list[Controller]:
    """Who has them watched; each tells the state and the log what is known of one kind, and has planned what may wait because of it."""
    return [_of_source(base, source) for source in base.caches.pod_groups]


def _of_source(base: Base, source: GroupSource) -> Controller:
    watch = base.caches.pod_groups[source]
    kind = str(watch.resource)
    was_unreadable = False

    def told(known: KindKnowledge, problem: str) -> None:
        nonlocal was_unreadable
        if problem:
            _log.warning(
                "Could not read PodGroups; until they can be read, nodes are launched only for those of their pods that their scheduler "
                "has reported as unschedulable",
                kind=kind,
                error=problem,
            )
        elif was_unreadable:
            _log.info("PodGroups are known again", kind=kind)
        was_unreadable = bool(problem)
        if base.cluster.pod_groups_known(known, source):
            base.plan_again("podgroups")

    return Controller(runner=LateWatch(kind, base.caches, base.client, base.clock, (watch,), told).poller)
