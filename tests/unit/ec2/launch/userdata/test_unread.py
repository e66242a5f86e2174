"""What keeps nodes from joining, and what nobody reads."""

import base64
import gzip

import pytest

from provisioner.ec2.launch.userdata import mime
from provisioner.ec2.launch.userdata.rendering import encoded, refused, render
from provisioner.ec2.launch.userdata.unread import unread
from tests.support.ec2.reading import UserDataError, read
from tests.support.userdata import node

HEAD = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"


def config(spec: str, head: str = HEAD) -> str:
    return f"{head}spec: {spec}\n"


def part(text: str, kind: str = mime.NODE_CONFIG) -> str:
    return mime.write([mime.MimePart.of(mime.SHELL_SCRIPT, "#!/bin/sh"), mime.MimePart.of(kind, text)])


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


REFUSED: dict[str, tuple[str, str]] = {
    "nothing": ("", ""),
    "a script": ("#!/bin/sh\na: b", ""),
    "a NodeConfig": (config("{kubelet: {flags: [--v=4]}}"), ""),
    "all fields that nodeadm knows": (
        config(
            "{cluster: {name: a, apiServerEndpoint: b, certificateAuthority: Q0E=, cidr: 10.0.0.0/16, enableOutpost: false, id: c}, "
            "containerd: {config: '', baseRuntimeSpec: {process: {}}}, featureGates: {InstanceIdNodeName: true}, "
            "instance: {localStorage: {strategy: RAID0, mountPath: /a, disabledMounts: [PodLogs]}}, "
            "kubelet: {config: {a: [1]}, flags: [a], maxPodsExpression: max_pods}}"
        ),
        "",
    ),
    "nulls are nothing": (config("{cluster: ~, kubelet: {config: ~, flags: ~}}"), ""),
    "unknown fields are passed over": (config("{a: 1, kubelet: {maxPod: 4}}"), ""),
    "a time is a text": (config("{cluster: {id: 2026-99-99}}"), ""),
    "without apiVersion and kind": (config("{}", ""), "found neither apiVersion nor kind"),
    "of another version": (
        config("{}", HEAD.replace("v1alpha1", "v1")),
        'found apiVersion "node.eks.aws/v1", kind "NodeConfig"',
    ),
    "of another kind": (config("{}", HEAD.replace("NodeConfig", "NodeConfigs")), 'kind "NodeConfigs"'),
    "cloud-config": ("#cloud-config\npackages: [jq]", "text/cloud-config"),
    "a number for a text": (
        config("{cluster: {name: 5}}"),
        'spec.cluster.name: must be a string, not an integer; write "5" in quotes',
    ),
    "a text for a list": (config("{kubelet: {flags: --v=4}}"), "spec.kubelet.flags: must be a list"),
    "a list for a mapping": (config("{kubelet: {config: [a]}}"), "spec.kubelet.config: must be an object"),
    "a text for a flag": (config("{featureGates: {InstanceIdNodeName: 'true'}}"), "must be a boolean"),
    "no base64": (config("{cluster: {certificateAuthority: '???'}}"), "spec.cluster.certificateAuthority"),
    "no base64 behind all lines that 128 KiB hold": (  # two minutes where that is tried from each of them
        part(packed(config(f"{{cluster: {{certificateAuthority: '{chr(10) * 130_000}!'}}}}"))),
        "spec.cluster.certificateAuthority",
    ),
    "a strategy that there is none of": (
        config("{instance: {localStorage: {strategy: RAID5}}}"),
        "use one of RAID0, RAID10, Mount",
    ),
    "a spec that is none": (config("[]"), "spec: must be an object"),
    "the first document counts": (f"a: b\n---\n{config('{}')}", "found neither"),
    "a part that is a NodeConfig": (part(config("{}")), ""),
    "a part in capitals": (part(config("{}"), "Application/Node.EKS.aws"), ""),
    "a part that is no mapping": (part("hello"), "its first document is not a mapping"),
    "a part that is not valid YAML": (part("a: ["), "is not valid YAML"),
    "an empty part": (part(""), "not a mapping"),
    "a part whose first document is empty": (part(f"---\n---\n{config('{}')}"), "not a mapping"),
    "a part of another kind": (part("#!/bin/sh"), "not a mapping"),
    "a packed part": (part(packed(config("{}"))), ""),
    "a packed part of another kind": (part(packed(config("{}", ""))), "neither"),
    "a part that is not packed well": (part(base64.b64encode(b"\x1f\x8bhello").decode()), "cannot decompress"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_user_data_with_which_no_node_joins(name: str) -> None:
    text, words = REFUSED[name]
    found = refused("AL2023", text)
    assert bool(found) is bool(words)
    assert words in found
    for family in ("AL2", "Bottlerocket", "Windows2022", "Custom"):
        assert refused(family, text) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_instances_agree(name: str) -> None:
    text, words = REFUSED[name]
    try:
        read("al2023", encoded(render(node("AL2023", user_data=text))))
    except UserDataError:
        assert words
    else:
        assert not words


def test_what_unfolds_to_too_much_is_not_judged() -> None:
    assert refused("AL2023", part(base64.b64encode(gzip.compress(b" " * (1 << 21))).decode())) == ""


SCRIPT = "#!/bin/sh\necho hi\n"
CLOUD_CONFIG = "packages: [jq]"
UNREAD: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "AL2023: nothing": ("AL2023", "", ()),
    "AL2023: a script": ("AL2023", SCRIPT, ()),
    "AL2023: a script that does not say what runs it": ("AL2023", "yum install -y jq", ("add #!/bin/bash",)),
    "AL2023: comments alone": ("AL2023", "# hello", ("add #!/bin/bash",)),
    "AL2023: a NodeConfig": ("AL2023", config("{}"), ()),
    "AL2023: unknown fields": (
        "AL2023",
        config("{kubelet: {maxPodExpression: a}, clusters: {}}"),
        (
            "spec.kubelet.maxPodExpression: unknown field; did you mean maxPodsExpression?",
            "spec.clusters: unknown field; did you mean cluster?",
        ),
    ),
    "AL2023: two documents": ("AL2023", f"{config('{}')}---\n{config('{}')}", ("only the first YAML document",)),
    "AL2023: a document that ends": ("AL2023", f"---\n{config('{}')}---\n", ("only the first YAML document",)),
    "AL2023: of a NodeConfig that is refused nothing more is said": ("AL2023", "a: b\n---\nc: d", ()),
    "AL2023: parts of all kinds": (
        "AL2023",
        mime.write(
            [
                *(
                    mime.MimePart.of(f"text/{kind}", "a")
                    for kind in ("cloud-config", "cloud-boothook", "x-include-url", "jinja2")
                ),
                mime.MimePart.of(mime.SHELL_SCRIPT, SCRIPT),
                mime.MimePart.of("text/plain", SCRIPT),
                mime.MimePart.of(mime.NODE_CONFIG, config("{}")),
                mime.MimePart.of('multipart/mixed; boundary="a"', "--a--"),
            ]
        ),
        (),
    ),
    "AL2023: a part of an unknown type": (
        "AL2023",
        part("a", "text/x-sh"),
        ("does not read MIME parts of type text/x-sh",),
    ),
    "AL2023: a part that another part reads": (
        "AL2023",
        mime.write([mime.MimePart.of("text/part-handler", "#part-handler"), mime.MimePart.of("text/x-own", "a")]),
        (),
    ),
    "AL2023: a part without type": ("AL2023", part(CLOUD_CONFIG, "text/plain"), ("set its Content-Type",)),
    "AL2023: cloud-config as a script": (
        "AL2023",
        part(CLOUD_CONFIG, "text/x-shellscript"),
        ("is run as a shell script",),
    ),
    "AL2023: behind the end": (
        "AL2023",
        part(config("{}")) + "Content-Type: application/node.eks.aws\n\na: b\n--//--\n",
        ("what follows the end of the MIME document",),
    ),
    "AL2023: a document that cannot be read": ("AL2023", "MIME-Version: 1.0\n\n", ()),
    "AL2: a NodeConfig": ("AL2", config("{}"), ("use NodeConfigs with AL2023 only",)),
    "AL2: a NodeConfig in a part": ("AL2", part(config("{}")), ("AL2 images do not read NodeConfigs",)),
    "AL2: a script that does not say what runs it": ("AL2", "yum install -y jq", ()),
    "Bottlerocket: settings": ("Bottlerocket", "[settings.kubernetes]\na = 1", ()),
    "Bottlerocket: other tables": (
        "Bottlerocket",
        "version = 2\n[settings]\n[plugins.a]",
        ("ignores these: plugins, version",),
    ),
    "Bottlerocket: what cannot be read": ("Bottlerocket", "[", ()),
    "Windows: PowerShell": ("Windows2022", "Write-Host hi", ()),
    "Windows: tags": (
        "Windows2022",
        "<powershell>a</powershell>\n<persist>true</persist>",
        ("(<powershell>, <persist>)",),
    ),
    "Windows: text outside": ("Windows2022", "hello\n<powershell>a</powershell>", ("(<powershell>)", "text outside")),
    "Custom: anything": ("Custom", CLOUD_CONFIG, ()),
    "no more than ten": (
        "AL2023",
        mime.write(mime.MimePart.of(f"text/x-{number}", "a") for number in range(50)),
        tuple(f"text/x-{number}" for number in range(10)),
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_nobody_reads(name: str) -> None:
    family, text, words = UNREAD[name]
    found = unread(family, text)
    assert len(found) == len(words)
    for told, word in zip(found, words, strict=True):
        assert word in told
