"""KWOKNodeClass, karpenter.kwok.sh/v1alpha1: how instances that nobody runs are made."""

from typing import Annotated, Final

from msgspec import field

from provisioner.apis.karpenter import DURATION
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import Schema

GROUP: Final = "karpenter.kwok.sh"
API_VERSION: Final = "karpenter.kwok.sh/v1alpha1"
KIND: Final = "KWOKNodeClass"


class KWOKNodeClassSpec(Object, frozen=True, kw_only=True):
    """Behaviour of the fake instances."""

    node_registration_delay: Annotated[
        str | None,
        Schema("Time from the creation of an instance until it joins the cluster as a node.", pattern=DURATION),
    ] = None


class KWOKNodeClassStatus(Object, frozen=True, kw_only=True):
    """Always ready unless somebody says otherwise."""

    conditions: Annotated[tuple[Condition, ...], Schema("Whether nodes can be created.")] = ()


class KWOKNodeClass(Object, frozen=True, kw_only=True):
    """karpenter.kwok.sh/v1alpha1 KWOKNodeClass."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: KIND)
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[KWOKNodeClassSpec, Schema("How the nodes behave.")] = KWOKNodeClassSpec()
    status: Annotated[
        KWOKNodeClassStatus,
        Schema(
            "Whether nodes can be created.",
            default={
                "conditions": (
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": "2024-01-01T01:01:01Z",
                        "reason": "Ready",
                        "message": "",
                    },
                )
            },
        ),
    ] = KWOKNodeClassStatus()
