"""Texts that `certs` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# rotation.py
LETTING_RECORD_EXPIRE: Final = "Letting this replica's record expire"
LEADER_ELECTION_FAILED: Final = "Leader election failed; retrying"
ANOTHER_WRITER_WAS_FASTER: Final = "Another writer was faster; reading again"
ROTATION_STEP_FAILED: Final = "A step of the certificate rotation failed; retrying"
REGISTERED_WEBHOOK: Final = "Registered the webhook"
ISSUED_CERTIFICATE: Final = "Issued a certificate"
SERVING_NEW_CERTIFICATE: Final = "Serving a new certificate"
INJECTED_CA_BUNDLE: Final = "Injected the CA bundle"

# mutual.py
ROTATED_CERTIFICATES: Final = "Rotated the certificates of both ends of a connection"
NOT_ROTATING_CERTIFICATES: Final = "Not rotating the certificates of both ends of a connection"


def other_secret_is_missing(namespace: str, there: str, lacking: str) -> str:
    """Why nothing is put into a Secret."""
    return f"Secret {namespace}/{lacking} does not exist, so Secret {there} gets no certificate; create it empty, or apply the manifests again"


# definitions.py
V1BETA1_IS_NOT_AVAILABLE: Final = "Objects at v1beta1 are not converted; v1 is not affected"


def definition_is_kept(name: str, owner: str, key: str) -> str:
    """Why a definition does not get the CA bundle; `key` is the label or annotation that names the owner."""
    return (
        f"CustomResourceDefinition {name} is managed by {owner} ({key}), which would undo the change; "
        f"remove the component conversion, or end the management by {owner} and remove {key} from the definition"
    )


# serving.py
FAILED_TO_RELOAD_CERTIFICATE: Final = "Failed to reload the serving certificate; serving the previous one"

# rotation.py


def secret_cannot_be_served(secret: str, problem: str) -> str:
    return f"Secret {secret} cannot be served: {problem}"


# store.py
SERVING_FILE_INCOMPLETE: Final = "the serving file does not contain a private key followed by a certificate"


def serving_file_unusable(error: Exception) -> str:
    return f"the serving file does not contain a usable certificate: {error}"


def secret_lacks_key(namespace: str, name: str, key: str) -> str:
    return f"Secret {namespace}/{name} has no {key}"


def secret_cannot_be_created(namespace: str, name: str) -> str:
    return f"Secret {namespace}/{name} does not exist, and this ServiceAccount may not create it; apply the manifests again"
