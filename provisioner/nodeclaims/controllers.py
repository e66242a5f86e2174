"""The controllers of this room."""

from itertools import chain

from provisioner.nodeclaims.plan_writer import NodePlanRemover
from provisioner.nodeclaims.writers import Writers
from provisioner.runtime.base import Base
from provisioner.runtime.changes import NodeChanged
from provisioner.runtime.controller import Controller, Keys


def controllers(base: Base, writing: Writers) -> list[Controller]:
    """What removes the plans that earlier versions wrote on Nodes; the threads of all writers are closed with it."""
    remover = NodePlanRemover(base.client, base.clock)

    def node_heard(change: NodeChanged) -> Keys | None:
        if change.new is not None:
            return remover.seen(change.new)
        remover.gone(change.latest.metadata.name)
        return None

    return [
        Controller(
            name="node-plan",
            reconcile=remover.reconcile,
            watches={NodeChanged: node_heard},
            initial=lambda: chain.from_iterable(map(remover.seen, base.caches.nodes.store.list())),
            pools=(writing.creates, writing.notes),
        )
    ]
