"""Which provider serves node classes of which kind, and what to say of a NodePool whose provider does not run."""

from typing import Final

from provisioner.apis import ec2, kwok
from provisioner.apis.karpenter import NodeClassReference
from provisioner.values.message import Said

PROVIDERS: Final = {(ec2.GROUP, ec2.KIND): "aws", (kwok.GROUP, kwok.KIND): "kwok"}
"""The value of --provider, by API group and kind of the node class."""


def provider_of(reference: NodeClassReference) -> str:
    """Who serves this node class; "" where none of ours does."""
    return PROVIDERS.get((reference.group, reference.kind), "")


def kinds_of(provider: str) -> frozenset[tuple[str, str]]:
    """(API group, kind) of the node classes that this provider serves; none for one that is not ours."""
    return frozenset(kind for kind, name in PROVIDERS.items() if name == provider)


def why_not_served(reference: NodeClassReference, provider: str) -> str:
    """What is wrong with this reference under a provider that does not serve it, and what to do."""
    served = " or ".join(sorted(kind for _, kind in kinds_of(provider))) or "another kind"
    other = provider_of(reference)
    run = f", or run the provisioner with --provider={other}" if other else ""
    return Said(
        f"nodeClassRef names {reference.kind or 'no kind'}, which the provider {provider} does not serve; create the NodePool again with {served} in "
        f"nodeClassRef{run}"
    )


def why_never_looked_at(reference: NodeClassReference) -> str:
    """Why a NodePool has no conditions, where it is not known which provider runs."""
    other = provider_of(reference)
    serves = f"a provisioner with --provider={other} sets them" if other else "Dovetail has no provider that serves it"
    return Said(f"its conditions are not set yet; nodeClassRef names {reference.kind or 'no kind'}: {serves}")
