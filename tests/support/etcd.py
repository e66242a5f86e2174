"""The etcd of a dev cluster."""

import json
from collections.abc import Mapping
from typing import Any

from provisioner.lab.devcluster import probing
from provisioner.lab.devcluster.cluster import DevCluster


def etcd_compact(cluster: DevCluster) -> int:
    """Compact etcd at its newest revision, so that a watch from an older one is answered 410; the revision."""
    found = _asked(cluster, "/v3/kv/range", {"key": "AA=="})  # the key \0: only the header matters
    revision = int(found["header"]["revision"])
    _asked(cluster, "/v3/kv/compaction", {"revision": str(revision), "physical": True})
    return revision


def _asked(cluster: DevCluster, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    reply = probing.request(
        cluster.ports["etcd"], path, method="POST", body=json.dumps(body).encode(), timeout_seconds=10.0
    )
    assert reply.status == 200, reply.body
    found = json.loads(reply.body)
    assert isinstance(found, dict)
    return found
