"""Windows: PowerShell around the user's text; and Custom, which is the user's alone."""

import base64
import dataclasses

import pytest

from provisioner.ec2.launch.userdata.rendering import check, encoded, render, size_of
from provisioner.ec2.launch.userdata.windows import elements_of
from provisioner.values.taints import Taint
from tests.support.userdata import CLUSTER, node

WHOLE = """<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'prod' -APIServerEndpoint 'https://prod.eks.amazonaws.com' \
-Base64ClusterCA 'Q0EtQlVORExF' -KubeletExtraArgs '--node-labels="karpenter.sh/capacity-type=spot,\
karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=p" \
--register-with-taints="dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=58' \
-DNSClusterIP '10.100.0.10' -ServiceCIDR '10.100.0.0/16'
</powershell>"""


@pytest.mark.parametrize("family", ["Windows2019", "Windows2022", "Windows2025"])
def test_the_whole_of_it(family: str) -> None:
    assert render(node(family)) == WHOLE


def test_the_user_s_text_comes_first() -> None:
    text = "Write-Host 'a'\nWrite-Host 'b'"
    assert render(node("Windows2022", user_data=text)) == WHOLE.replace("<powershell>\n", f"<powershell>\n{text}\n", 1)


HELLO = "Write-Host hi"
TAGGED: dict[str, tuple[str, str, str]] = {
    "PowerShell": (f"<powershell>\n{HELLO}\n</powershell>", f"{HELLO}\n", ""),
    "upper case, on one line": (f"<PowerShell>{HELLO}</POWERSHELL>", f"{HELLO}\n", ""),
    "PowerShell twice": ("<powershell>\n1\n</powershell>\n<powershell>\n2\n</powershell>", "1\n2\n", ""),
    "for every boot": (
        f"<powershell>\n{HELLO}\n</powershell>\n<persist>true</persist>\n",
        f"{HELLO}\n",
        "\n<persist>true</persist>",
    ),
    "a batch script beside it": (
        f"<script>\necho hi\n</script>\n<powershell>\n{HELLO}\n</powershell>",
        f"{HELLO}\n",
        "\n<script>\necho hi\n</script>",
    ),
    "a tag behind a plain script": (f"{HELLO}\n<persist>true</persist>", f"{HELLO}\n", "\n<persist>true</persist>"),
    "text outside, which EC2Launch does not read": (f"hello\n<powershell>\n{HELLO}\n</powershell>", f"{HELLO}\n", ""),
    "nothing inside": ("<powershell></powershell>", "\n", ""),
    "a tag within a line": ('Write-Host "<persist>"', 'Write-Host "<persist>"\n', ""),
    "a tag that does not end": (f"<script>\n{HELLO}", f"<script>\n{HELLO}\n", ""),
}


@pytest.mark.parametrize("name", TAGGED)
def test_tags_are_merged(name: str) -> None:
    text, inside, behind = TAGGED[name]
    want = WHOLE.replace("<powershell>\n", f"<powershell>\n{inside}", 1) + behind
    assert render(node("Windows2022", user_data=text)) == want


def test_tags_that_do_not_end_cost_linear_work() -> None:
    """Each was looked for to the end of the text: 40,000 of them would take minutes."""
    text = "<script>\n<persist>\n" * 20_000
    assert elements_of(text).scripts == (text,)


def test_local_disks_change_nothing() -> None:
    assert render(node("Windows2022", raid0=True)) == WHOLE


def test_what_is_not_known_is_not_said() -> None:
    rendered = render(node("Windows2022", cluster=dataclasses.replace(CLUSTER, dns="", cidr="")))
    assert "-DNSClusterIP" not in rendered
    assert "-ServiceCIDR" not in rendered


def test_a_quote_is_doubled() -> None:
    assert "it''s" in render(node("Windows2022", taints=(Taint("a", "NoSchedule", "it's"),)))


@pytest.mark.parametrize("text", ["", "#!/bin/sh\n", "MIME-Version: x", "[settings"])
def test_custom_is_the_user_s_text_as_it_is(text: str) -> None:
    check("Custom", text)
    assert render(node("Custom", user_data=text, raid0=True)) == text


def test_requests_carry_base64_of_utf_8() -> None:
    assert base64.b64decode(encoded("ü\n")).decode() == "ü\n"
    assert (encoded(""), size_of("ü\n")) == ("", 3)
