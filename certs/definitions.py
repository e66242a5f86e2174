"""The `caBundle` of CustomResourceDefinitions whose objects a webhook converts.

It follows the bundle of the webhook configuration and decides nothing. A definition that Helm, Argo CD or Flux keeps is left alone, as they
would undo it, and every one while Karpenter runs beside us: then v1beta1 is not available, and v1 is as ever.
"""

from typing import Final

from certs.injection import bundle_patch, certificates
from provisioner.apis.conversion.ownership import owner_of
from provisioner.apis.core import CustomResourceDefinition
from provisioner.kube.client import Client
from provisioner.kube.other_karpenter import OtherKarpenter
from provisioner.kube.resources import CRDS
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.message import Said

_PATH: Final = "/spec/conversion/webhook/clientConfig/caBundle"
_log = logs.get_logger(__name__)
INJECTED_CA_BUNDLE: Final = "Injected the CA bundle"


def _definition_is_kept(name: str, owner: str, key: str) -> str:
    """Why a definition does not get the CA bundle; `key` is the label or annotation that names the owner."""
    return Said(
        f"CustomResourceDefinition {name} is managed by {owner} ({key}), which would undo the change; "
        f"remove the component conversion, or end the management by {owner} and remove {key} from the definition"
    )


def refusal(definition: CustomResourceDefinition) -> str:
    """Why this definition is not changed, as a sentence; "" where it may be."""
    owner = owner_of(definition.metadata.labels, definition.metadata.annotations)
    return _definition_is_kept(definition.metadata.name, owner.name, owner.key) if owner is not None else ""


def injection(definition: CustomResourceDefinition, bundle: bytes) -> list[dict[str, object]]:
    """The JSON Patch that makes the conversion of a definition trust this bundle; empty where it does, or is none of a webhook's."""
    conversion = definition.spec.conversion
    hook = None if conversion is None or conversion.strategy != "Webhook" else conversion.webhook
    if hook is None or hook.client_config is None:
        return []
    return bundle_patch(definition.metadata, {_PATH: hook.client_config.ca_bundle}, bundle)


class DefinitionInjector:
    """Writes the bundle into the definitions of these names.

    Args:
        clock: for the age of Karpenter's Lease.
        namespace: our own.
        karpenter_namespace: where Karpenter runs, if that is unusual.
    """

    def __init__(
        self, client: Client, clock: Clock, names: tuple[str, ...], namespace: str, karpenter_namespace: str = ""
    ) -> None:
        self._client, self._names = client, names
        self._karpenter = OtherKarpenter(client, clock, namespace, karpenter_namespace)
        self._said = ""

    def inject(self, bundle: bytes) -> None:
        """Makes all of them trust exactly this bundle, where they may be changed; one that is not there is passed over.

        Raises:
            Invalid: a definition is no longer the one that was read; read again.
            ApiError: the server refused otherwise.
        """
        refused = []
        beside: str | None = None
        for name in self._names:
            definition = self._client.find(CRDS, name)
            if definition is None:
                continue
            patch = injection(definition, bundle)
            if not patch:
                continue
            beside = self._karpenter.look() if beside is None else beside
            reason = refusal(definition) or beside
            if not reason:
                self._client.patch(CRDS, name, patch, kind="json")
                _log.info(INJECTED_CA_BUNDLE, kind=CRDS.kind, certificates=len(certificates(bundle)))
            else:
                refused.append(reason)
        text = "; ".join(dict.fromkeys(refused))
        if text and text != self._said:
            _log.warning("Objects at v1beta1 are not converted; v1 is not affected", reason=text)
        self._said = text
