"""Which NodePools are paused, by a user or because Karpenter itself leads, so that their nodes are not disrupted.

Differs: Karpenter has no pause; budgets of 0 do not stop what has begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool
from provisioner.values.message import Said

PAUSED: Final = "paused"
"""The key of the ConfigMap."""
_NOT: Final = frozenset({"", "false"})


@dataclass(frozen=True, slots=True)
class Pause:
    """What is paused at one instant.

    Attributes:
        everything: all NodePools are.
        pools: names of those that are themselves.
        unread: everything is, because nobody knows what the ConfigMap says.
        beside: everything is, because another Karpenter leads: this says so. Drains that have begun go on.
    """

    everything: bool = False
    pools: frozenset[str] = frozenset()
    unread: bool = False
    beside: str = ""

    @property
    def covers_all(self) -> bool:
        return self.everything or bool(self.beside)

    def why(self, pool: str) -> str:
        """What pauses the nodes of a NodePool, as users read it; "" where nothing does."""
        if self.beside:
            return Said(f"Disruption is suspended because {self.beside}")
        return self.why_drains(pool)

    def why_drains(self, pool: str) -> str:
        """What pauses the drains of a NodePool's nodes, as users read it; "" where nothing does."""
        if self.unread:
            unread = Said(f'the provisioner has not read ConfigMap "{names.SETTINGS_CONFIGMAP}" yet')
            return Said(f"Disruption is suspended because {unread}; its Role must allow listing and watching it")
        if self.everything:
            return Said(f'Disruption is paused by the key "{PAUSED}" of ConfigMap "{names.SETTINGS_CONFIGMAP}"')
        if pool in self.pools:
            return Said(f'Disruption is paused by the annotation "{names.PAUSED}" of NodePool "{pool}"')
        return ""


NOTHING: Final = Pause()


def pause_of(pools: Iterable[NodePool], settings: Mapping[str, str] | None, beside: str = "") -> Pause:
    """What is paused. A value that is neither `true` nor `false` pauses: whoever wrote it wants something to stop.

    Args:
        pools: every NodePool.
        settings: `data` of the ConfigMap; empty where there is none, None while that is not known.
        beside: that another Karpenter leads, as a sentence; "" where none does.
    """
    paused = (one.metadata.name for one in pools if _says(one.metadata.annotations.get(names.PAUSED, "")))
    unread = settings is None
    return Pause(unread or _says((settings or {}).get(PAUSED, "")), frozenset(paused), unread, beside)


def _says(value: str) -> bool:
    return value.strip().lower() not in _NOT
