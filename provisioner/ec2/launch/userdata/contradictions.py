"""What a user's own user data says about the cluster, where the cluster is another. Pure.

A node that joins with such values joins elsewhere or not at all, and its claim is made anew every few minutes. Ours
win in the merged form of most families, but not over a start script that the user calls before ours.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from provisioner.apis import ec2
from provisioner.ec2.launch.userdata import al2023, bottlerocket, mime, node_config
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, UserDataError
from provisioner.values.message import Said

_MOST: Final = 10
"""Sentences of one user data; each is an event."""
_BOOTSTRAP: Final = "/etc/eks/bootstrap.sh"
_NAME, _ENDPOINT, _CA, _CIDR = "cluster name", "endpoint", "certificate authority", "service CIDR"
_NODE_CONFIG: Final = {
    "name": _NAME,
    "apiServerEndpoint": _ENDPOINT,
    "certificateAuthority": _CA,
    "cidr": _CIDR,
}
_SETTINGS: Final = {"cluster-name": _NAME, "api-server": _ENDPOINT, "cluster-certificate": _CA}
_ENDS: Final = frozenset({"&&", "||", "|", ";", "&"})
_SCRIPT_FLAGS: Final = {"--apiserver-endpoint": _ENDPOINT, "--b64-cluster-ca": _CA}
_POWERSHELL: Final = {
    "eksclustername": _NAME,
    "apiserverendpoint": _ENDPOINT,
    "base64clusterca": _CA,
    "servicecidr": _CIDR,
}
_POWERSHELL_FLAG: Final = re.compile(
    r"-(EKSClusterName|APIServerEndpoint|Base64ClusterCA|ServiceCIDR)[\s:]+(?:'([^']*)'|\"([^\"]*)\"|([^\s'\"]+))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Said:
    """One thing that user data says: where, about what, and the value."""

    where: str
    what: str
    value: str


def contradictions(family: str, user_data: str, cluster: JoinedCluster) -> tuple[str, ...]:
    """A sentence for each value that is not the cluster's, the first ten in the order in which they stand; certificates are not shown.

    Args:
        family: AMI family; of Custom every form is looked for.
        user_data: the user's own, readable or not.
        cluster: that nodes are to join; what is not known of it contradicts nothing.
    """
    ours = {_NAME: cluster.name, _ENDPOINT: cluster.endpoint, _CA: cluster.ca_bundle, _CIDR: cluster.cidr}
    found = dict.fromkeys(
        _sentence(said, ours[said.what])
        for said in _statements(family, user_data)
        if ours[said.what] and _plain(said.what, said.value) != _plain(said.what, ours[said.what])
    )
    return tuple(itertools.islice(found, _MOST))


def _sentence(said: _Said, ours: str) -> str:
    if said.what == _CA:
        return Said(f"{said.where} has a different {said.what} than this cluster")
    return Said(f'{said.where} has the {said.what} "{said.value}", but this cluster has "{ours}"')


def _plain(what: str, value: str) -> str:
    """What two spellings of one value have in common."""
    if what == _ENDPOINT:
        return value.strip().rstrip("/").removesuffix(":443").lower()
    return "".join(value.split()) if what == _CA else value


def _statements(family: str, user_data: str) -> Iterator[_Said]:
    if family == ec2.BOTTLEROCKET or (family == ec2.CUSTOM and "settings" in user_data):
        yield from _of_settings(user_data)
    if family in (*ec2.WINDOWS_FAMILIES, ec2.CUSTOM):
        yield from _of_powershell(user_data)
    if family in (ec2.AL2, ec2.AL2023, ec2.CUSTOM):
        yield from _of_parts(user_data)


def _of_parts(user_data: str) -> Iterator[_Said]:
    try:
        parts = al2023.parts_of(user_data)
    except UserDataError:
        return
    for part in parts:
        if part.media_type == mime.NODE_CONFIG:
            yield from _of_node_config(part.text)
        else:
            yield from _of_script(part.text)


def _of_node_config(text: str) -> Iterator[_Said]:
    cluster = node_config.read(text).cluster
    for field, what in _NODE_CONFIG.items():
        if isinstance(cluster.get(field), str) and cluster[field]:
            yield _Said(f"NodeConfig spec.cluster.{field}", what, cluster[field])


def _of_settings(user_data: str) -> Iterator[_Said]:
    try:
        kubernetes = bottlerocket.settings_of(user_data).get("kubernetes", {})
    except UserDataError:
        return
    for key, what in _SETTINGS.items():
        if isinstance(kubernetes.get(key), str):
            yield _Said(f"settings.kubernetes.{key}", what, kubernetes[key])


def _of_script(text: str) -> Iterator[_Said]:
    for line in text.replace("\\\n", " ").splitlines():
        if _BOOTSTRAP in line:
            yield from _of_call(line)


def _of_call(line: str) -> Iterator[_Said]:
    """Of one call of the start script; a value that the shell makes says nothing."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    if _BOOTSTRAP not in words:
        return
    arguments = iter(words[words.index(_BOOTSTRAP) + 1 :])
    named = False
    for word in arguments:
        if word in _ENDS:
            return
        flag, equals, value = word.partition("=")
        where, what = f"{flag} of the call of {_BOOTSTRAP}", _SCRIPT_FLAGS.get(flag, "")
        if not word.startswith("-"):
            where, what, value, named = f"the call of {_BOOTSTRAP}", "" if named else _NAME, word, True
        elif not equals:
            value = next(arguments, "")
        if what and value and "$" not in value and "`" not in value:
            yield _Said(where, what, value)


def _of_powershell(text: str) -> Iterator[_Said]:
    for found in _POWERSHELL_FLAG.finditer(text):
        value = found[2] or found[3] or found[4] or ""
        if value and "$" not in value:
            yield _Said(f"-{found[1]} of the start script", _POWERSHELL[found[1].lower()], value)
