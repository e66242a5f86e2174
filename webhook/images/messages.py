"""Texts that `webhook/images` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# documents.py
INDEX_AND_MANIFEST: Final = "the document is an index and a manifest at once"
NEITHER_INDEX_NOR_MANIFEST: Final = "the document is neither an index nor a manifest of an image"
NOT_A_CONTAINER_IMAGE: Final = "the manifest does not describe a container image"
NO_CONFIGURATION: Final = "the manifest names no configuration"
INDEX_TOO_LONG: Final = "the index has too many entries"
NO_PLATFORM_IN_INDEX: Final = "the index names no platform that a node can have"
NO_PLATFORM_IN_CONFIGURATION: Final = "the configuration names no platform that a node can have"
NO_TOKEN: Final = "the response contains no usable token"


def manifest_unreadable(error: Exception) -> str:
    return f"the manifest cannot be read: {error}"


def index_unreadable(error: Exception) -> str:
    return f"the index cannot be read: {error}"


ENTRY_WITHOUT_PLATFORM: Final = "an entry of the index names no platform"


def configuration_unreadable(error: Exception) -> str:
    return f"the configuration cannot be read: {error}"


def token_unreadable(error: Exception) -> str:
    return f"the response with the token cannot be read: {error}"


PULL_SECRET_UNREADABLE: Final = "the pull secret cannot be read"

# references.py


def not_a_host_name(text: str) -> str:
    return f"{text!r} is not a host name"


def no_valid_port(text: str) -> str:
    return f"{text!r} has no valid port"


REFERENCE_TOO_LONG: Final = "the reference is too long"
UNKNOWN_DIGEST: Final = "the digest is not one of sha256 or sha512"
INVALID_TAG: Final = "the tag is not valid"
INVALID_REPOSITORY: Final = "the name of the repository is not valid"

# registry.py


def url_without_tls(host: object) -> str:
    return f"the registry names a URL of {host} that is not HTTPS"


def url_unusable(host: object) -> str:
    return f"the registry names a URL of {host} that cannot be used"


DIGEST_DIFFERS: Final = "the registry sent a document that does not match the digest"


def registry_not_listed(registry: object) -> str:
    return f"registry {registry} is not in --image-registries"


def access_denied(registry: object) -> str:
    return f"registry {registry} denies access: no credentials"


def token_host_not_allowed(registry: object, host: object) -> str:
    return f"registry {registry} requests tokens from {host}, which --image-registries does not allow"


URL_UNREADABLE: Final = "the registry names a URL that cannot be read"


def redirect_not_allowed(registry: object, host: object) -> str:
    return f"registry {registry} redirects to {host}, which --image-registries does not allow"


# transport.py


def address_not_public(host: object, address: object) -> str:
    return f"{host} has the address {address}, which is not public and not in --image-registry-networks"


LOOKUP_TIMED_OUT: Final = "the lookup timed out"


def answer_too_large(most: int) -> str:
    return f"the response is larger than {most} bytes"


ANSWER_IN_TOO_MANY_PIECES: Final = "the response consists of too many pieces"
CONNECTION_ENDED: Final = "the connection ended before the response was complete"

# trust.py


def network_never_used(entry: str) -> str:
    return f"{entry!r} holds link-local, metadata, translated or multicast addresses, which are never used"


def not_an_account(entry: str) -> str:
    return f"{entry!r} is not an AWS account ID of 12 digits"


def invalid_registry(error: Exception) -> str:
    return f"{error}; use HOST, HOST:PORT or *.DOMAIN, with =HOST for each host that it may redirect to"


def not_a_network(entry: str) -> str:
    return f"{entry!r} is not a network such as 10.0.0.0/8"


# service.py


def in_flag(flag: str, error: object) -> str:
    return f"{flag}: {error}"
