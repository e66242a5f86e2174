"""What a `LateWatch` asks and tells: an API server with a script, and caches whose late watch a test moves."""

import threading
from types import SimpleNamespace
from typing import Any, cast

from provisioner.kube.client import Client
from provisioner.kube.resources import GROUP_KINDS, Resource
from provisioner.options import Options
from provisioner.runtime.base import Base
from provisioner.runtime.caches import Caches
from provisioner.state.knowledge import KindKnowledge
from tests.support.clock import FakeClock
from tests.support.cluster import World
from tests.support.kube import FakeAnswer, FakeApi, ok, refusal

NOT_FOUND = refusal(404, "NotFound")
NOT_YET, UNREADABLE, READ, NOT_SERVED = KindKnowledge


def served(resource: Resource[Any]) -> FakeAnswer:
    """The API server has this kind, among others."""
    return ok({"kind": "APIResourceList", "resources": [{"name": "workloads"}, {"name": resource.plural}]})


class LateKind:
    """One kind that is not watched yet, and everything that a controller of it is made of.

    Attributes:
        watch: as the caches have it; `watches`: those of its older versions, too.
        again: why what waits is to be planned again.
        world: the state.
    """

    def __init__(
        self, resource: Resource[Any], *answers: FakeAnswer, older: tuple[Resource[Any], ...] = (), **options: Any
    ) -> None:
        self.clock, self.api, self.world = FakeClock(), FakeApi(*answers), World()
        self.client = Client(self.api, self.api.clock)
        self.again = list[str]()
        self.watches: tuple[Any, ...] = tuple(
            SimpleNamespace(
                resource=one,
                synced=threading.Event(),
                error=None,
                store=object(),
                staleness=lambda: 60.0,
                lag=lambda: 0.0,
            )
            for one in (resource, *older)
        )
        self.watch = self.watches[0]
        self.caches = cast(
            Caches,
            SimpleNamespace(
                watch=self._begin,
                all=(),
                cluster=self.world.cluster,
                pod_groups={source: self.watch for source, kind in GROUP_KINDS.items() if kind == resource},
                autoscalers=self.watch,
                requests=self.watches,
            ),
        )
        self.base = cast(
            Base,
            SimpleNamespace(
                caches=self.caches,
                cluster=self.world.cluster,
                client=self.client,
                clock=self.clock,
                options=Options(**options),
                plan_again=self.again.append,
            ),
        )

    def _begin(self, watch: object) -> None:
        assert watch not in self.caches.all
        self.caches.all = (*self.caches.all, cast(Any, watch))

    @property
    def is_watched(self) -> bool:
        """Whether the caches were told to begin."""
        return self.watch in self.caches.all

    @property
    def asked(self) -> int:
        """How often the API server was."""
        return len(self.api.sent)
