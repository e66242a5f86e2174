"""AL2: a shell script that calls the image's own start script, in a MIME document behind the user's parts. Pure.

Source: AWS spec 2.4. Differs: map-valued flags are sorted, so equal inputs give equal bytes; a quote within a value is escaped.
"""

from collections.abc import Iterator

from provisioner.ec2.launch.userdata import mime
from provisioner.ec2.launch.userdata.flags import kubelet_flags
from provisioner.ec2.launch.userdata.inputs import NodeInput


def parts_of(user_data: str) -> tuple[mime.MimePart, ...]:
    """The user's parts: those of a MIME document, else one script.

    Raises:
        UserDataError: the MIME document cannot be read.
    """
    if not user_data.strip():
        return ()
    return mime.read(user_data) if mime.is_mime(user_data) else (mime.MimePart.of(mime.SHELL_SCRIPT, user_data),)


def render(node: NodeInput) -> str:
    """The whole user data.

    Raises:
        UserDataError: the user's MIME document cannot be read.
    """
    return mime.write((*parts_of(node.user_data), mime.MimePart.of(mime.SHELL_SCRIPT, _script(node))))


def _script(node: NodeInput) -> str:
    return "\n".join(
        (
            "#!/bin/bash -xe",
            "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1",
            " \\\n".join(_call(node)),
        )
    )


def _call(node: NodeInput) -> Iterator[str]:
    cluster = node.cluster
    yield (
        f"/etc/eks/bootstrap.sh {_quoted(cluster.name)} --apiserver-endpoint {_quoted(cluster.endpoint)}"
        f" --b64-cluster-ca {_quoted(cluster.ca_bundle)}"
    )
    if node.ipv6:
        yield "--ip-family ipv6"
    if node.cluster_dns:
        yield f"--dns-cluster-ip {_quoted(node.cluster_dns[0])}"
    yield "--use-max-pods false"
    yield f"--kubelet-extra-args {_quoted(kubelet_flags(node))}"
    if node.raid0:
        yield "--local-disks raid0"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
