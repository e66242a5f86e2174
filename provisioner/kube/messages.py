"""Texts that `kube` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# config.py
FAILED_TO_RELOAD_CREDENTIALS: Final = "Failed to reload credentials; keeping the previous ones"
IMPORTING_WHOLE_KUBERNETES_CLIENT: Final = "Importing the official Kubernetes client as a whole"

# events.py
FAILED_TO_WRITE_EVENT: Final = "Failed to write an event"

# lease.py
BECAME_LEADER: Final = "Became the leader"
LOST_LEADER_ELECTION_LEASE: Final = "Lost the leader election Lease"
STOPPED_LEADING: Final = "Stopped leading"
FAILED_TO_START_LEADING: Final = "Failed to start leading; releasing the Lease"
FAILED_TO_READ_LEASE: Final = "Failed to read the Lease; retrying"
FAILED_TO_ACQUIRE_LEASE: Final = "Failed to acquire the Lease; retrying"
LEASE_HOLDER_CHANGED: Final = "The holder of the Lease changed"
FAILED_TO_RENEW_LEASE: Final = "Failed to renew the Lease; retrying"
FAILED_TO_RELEASE_LEASE: Final = "Failed to release the Lease"
RELEASED_LEASE: Final = "Released the Lease"

# watch.py
IGNORING_OBJECT: Final = "Ignoring an object that cannot be read"
IGNORING_PARTS_OF_OBJECT: Final = "Ignoring parts of an object that cannot be read"
WATCH_FAILED: Final = "Watch failed; retrying"
RESOURCE_VERSION_TOO_OLD: Final = "The resource version is too old; listing all objects again"
LIST_WITH_UNREADABLE_IDENTITY: Final = (
    "A list contains an object without a readable identity; no deletions are inferred from it"
)
LISTED_OBJECTS: Final = "Listed objects"
EVENT_HANDLER_FAILED_AT_INITIAL_SYNC: Final = "Event handler failed at the initial sync"
WATCHLIST_NOT_SUPPORTED: Final = "The API server does not support WatchList; reading lists in pages"
IGNORED_WATCH_EVENT: Final = "Ignored a watch event of unknown type"
EVENT_HANDLER_FAILED_FOR_UNREADABLE_OBJECT: Final = "Event handler failed for an unreadable object"
EVENT_HANDLER_FAILED: Final = "Event handler failed"


# beside.py
def karpenter_runs(namespace: str) -> str:
    """Why nothing is launched, disrupted or translated, and no definition gets the CA bundle."""
    return f"Karpenter runs in namespace {namespace}; scale its Deployment to 0, or uninstall it"


# config.py


def server_is_no_url(url: str) -> str:
    return f"server {url!r} is not an http or https URL"


def no_kubeconfig_found(named: str) -> str:
    return (
        f"no kubeconfig found: the process does not run in a pod and {named!r} is not a file; set "
        "--kubeconfig or $KUBECONFIG"
    )


def cannot_get_token(error: object) -> str:
    return f"cannot get a token: {error}"


def kubeconfig_does_not_exist(kubeconfig: str) -> str:
    return (
        f"kubeconfig {kubeconfig!r} does not exist or is not a file; set --kubeconfig to the path of a kubeconfig file"
    )


def source_cannot_be_used(source: object, error: object) -> str:
    return f"{source} cannot be used: {error}"


def no_usable_credentials(source: object) -> str:
    return f"{source} contains no usable credentials: no token, no client certificate and no exec plugin"


def exec_plugin_gives_no_credentials(source: object, command: str, install_hint: str, *, missing: bool) -> str:
    fact = "is not installed" if missing else "did not return a token or a client certificate; run it to see why"
    return f"{source} cannot be used: its exec plugin {command!r} {fact}{f'. {install_hint}' if install_hint else ''}"


def auth_provider_gives_no_token(source: object, provider: str) -> str:
    plugins = {
        "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials CLUSTER`",
        "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    }
    remedy = plugins.get(provider, "log in again, or use an exec plugin")
    return f"{source} cannot be used: its auth-provider {provider!r} has no valid token, and only a plugin can get one; {remedy}"


# lease.py
NO_LONGER_THE_LEADER: Final = "this process is no longer the leader"
NOT_THE_LEADER: Final = "this process is not the leader"


def not_a_lease(error: Exception) -> str:
    return f"not a Lease: {error}"


# survey.py


def no_answer_within(wait_seconds: float) -> str:
    return f"no answer arrived within {wait_seconds:.0f} s"


# lag.py
PROBE_FAILED: Final = "Failed to read the current resource version; retrying"

# watch.py


def stream_is_garbled(error: object) -> str:
    return f"the stream is garbled: {error}"


STREAM_ENDED_EARLY: Final = "the stream ended before the initial list was complete"


def bookmark_unreadable(error: object) -> str:
    return f"a bookmark cannot be read: {error}"


# forwarding.py
FORWARD_TOO_LONG: Final = "it took too long"
FORWARD_TOO_LARGE: Final = "it sent too much"
FORWARD_SENT_TEXT: Final = "the API server sent text"
