"""The command as a whole: tables, JSON that stays, pictures, comparisons, and exit statuses."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
import yaml
from click.testing import CliRunner, Result

from provisioner.cli.documents import InputError
from provisioner.cli.plan.command import command
from provisioner.cli.plan.unnominated import Unnominated
from provisioner.values.errors import UserError

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs" / "guides" / "plan"
SHOP = GUIDE / "shop.yaml"
GREEDY = ("--greedy",)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], input=stdin, catch_exceptions=False)


def document(*arguments: object, status: int = 0) -> dict[str, Any]:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == status, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def write(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def kind_of(value: object) -> object:
    """The schema of a value, as far as a program relies on it."""
    match value:
        case dict():
            return {key: kind_of(inner) for key, inner in value.items()}
        case list():
            return [kind_of(value[0])] if value else []
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case None:
            return "null"
        case _:
            return "text"


GROUP = {
    "nodePool": "text",
    "instanceType": "text",
    "zone": "text",
    "capacityType": "text",
    "count": "number",
    "perHourEach": "number",
    "pods": "number",
    "cpuRequested": "number",
    "memoryRequested": "number",
    "reason": "text",
}
PLAN = {
    "name": "text",
    "perHour": "number",
    "perMonth": "number",
    "perHourAtLeast": "number",
    "gap": "number",
    "stage": "text",
    "greedyPerHour": "number",
    "fallback": "text",
    "complete": "bool",
    "pods": dict.fromkeys(("asked", "onNewNodes", "onExistingNodes", "withoutNode", "refusingNodePools"), "number"),
    "nodes": "number",
    "nodeGroups": [GROUP],
    "existingNodes": [],
    "unplaced": [{"count": "number", "pods": ["text"], "reasons": ["text"]}],
    "gangs": [],
    "constraints": [{"constraint": "text", "perHourWithout": "number", "morePodsWithout": "number"}],
    "withoutNominations": dict.fromkeys(("nodes", "perHour", "podsLeft", "podsWithoutNode", "podsAssumed"), "number"),
    "savingPerMonth": "null",
}
SCHEMA = {
    "version": "number",
    "catalogue": "text",
    "currency": "text",
    "pricesEstimated": "bool",
    "plans": [PLAN],
    "current": "null",
    "notes": ["text"],
    "problems": [],
    "ignored": {},
}


def test_the_fields_of_the_json_stay() -> None:
    found = document(SHOP, "--seconds", 120, "--rounds", 3)
    assert kind_of(found) == SCHEMA
    assert found["version"] == 1
    (plan,) = found["plans"]
    assert plan["perHour"] == pytest.approx(sum(one["count"] * one["perHourEach"] for one in plan["nodeGroups"]))
    assert plan["perHourAtLeast"] <= plan["perHour"] <= plan["greedyPerHour"]
    assert plan["pods"] == {
        "asked": 64,
        "onNewNodes": 63,
        "onExistingNodes": 0,
        "withoutNode": 1,
        "refusingNodePools": 0,
    }
    assert plan["unplaced"][0]["pods"] == ["default/training-0"]
    without = plan["withoutNominations"]
    assert (without["nodes"], without["perHour"]) > (plan["nodes"], plan["perHour"])
    assert (without["podsWithoutNode"], without["podsAssumed"]) == (0, 3), (
        "of the queue: they keep away from each other"
    )


TOLD = {
    "not known": (None, ""),
    "nobody is left": (Unnominated(4, 1.0), ""),
    "nearly nothing": (Unnominated(5, 1.004, left=2), ""),
    "another node": (Unnominated(5, 1.1, left=2), "(10 % more); 2 pods may have to wait for other nodes."),
    "a pod without a node": (
        Unnominated(4, 1.0, left=2, without_node=1, assumed=1),
        "(0 % more); 2 pods may have to wait for other nodes, of which 1 cannot be placed; 1 pod is assumed to run as planned.",
    ),
}


@pytest.mark.parametrize(("found", "said"), TOLD.values(), ids=TOLD)
def test_what_nominations_save_is_told_where_they_do(
    found: Unnominated | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices here are of what was planned."""

    def answer(_: object, planned: Any, **__: object) -> Unnominated | None:
        return found and replace(found, usd_per_hour=found.usd_per_hour * planned.usd_per_hour)

    monkeypatch.setattr("provisioner.cli.plan.planning.unnominated", answer)
    text = " ".join(run(SHOP, *GREEDY).stdout.split())
    assert said in text
    assert ("Without nominations: about " in text) is bool(said)


def figures(text: str) -> list[float]:
    """Cost, bound, and what the greedy plan costs."""
    found = re.findall(r"^(?:Cost:|Proved:.* less than|The greedy plan would cost) ([\d.]+) USD/h", text, re.MULTILINE)
    return [float(one) for one in found]


def test_the_guide_shows_what_the_command_prints() -> None:
    """But for the last figures of the search, which may differ where another processor adds up in another order."""
    text = (GUIDE / "README.md").read_text(encoding="utf-8")
    shown = text.partition("$ dovetail plan --seconds 120 docs/guides/plan/shop.yaml\n")[2].partition("```")[0].strip()
    result = run("--seconds", 120, SHOP)
    assert result.exit_code == 0
    (cost, least, greedy), (real, real_least, real_greedy) = figures(shown), figures(result.stdout)
    assert real == pytest.approx(cost, rel=0.03)
    assert (real_least, real_greedy) == (least, greedy)
    without = re.compile(
        r"^Without nominations: about \d+ nodes, [\d.]+ USD/h \(\d+ % more\); \d+ pods may", re.MULTILINE
    )
    assert without.search(shown)
    assert without.search(result.stdout)
    after = "No node for default/training-0:"
    assert shown.partition(after)[1:] == result.stdout.strip().partition(after)[1:]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert figures(readme.replace("    ", "")) == [cost, least, greedy]


def test_the_picture_is_xml(tmp_path: Path) -> None:
    svg = tmp_path / "fleet.svg"
    assert run(SHOP, *GREEDY, "--svg", svg).exit_code == 0
    assert fromstring(svg.read_text(encoding="utf-8")).tag == "{http://www.w3.org/2000/svg}svg"
    html = tmp_path / "fleet.html"
    assert run(SHOP, *GREEDY, "--html", html).exit_code == 0
    assert '"source":"dovetail plan"' in html.read_text(encoding="utf-8")


def test_standard_input_is_read() -> None:
    result = run("-", *GREEDY, stdin=SHOP.read_text(encoding="utf-8"))
    assert result.exit_code == 0
    assert "63 on" in result.stdout


def pool(name: str, *categories: str, capacity_type: str = "on-demand") -> dict[str, Any]:
    requirements = [
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": list(categories)},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, count: int, cpu: str, memory: str) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": count, "template": template},
    }


def test_two_files_of_node_pools_are_compared(tmp_path: Path) -> None:
    pods = write(tmp_path / "pods.yaml", deployment("web", 20, "1", "6Gi"), pool("ignored", "p"))
    any_of = write(tmp_path / "any.yaml", pool("default", "c", "m", "r"))
    only_c = write(tmp_path / "only-c.yaml", pool("default", "c"))
    found = document(pods, *GREEDY, "--compare", any_of, only_c)
    first, second = found["plans"]
    assert (first["name"], second["name"]) == ("any.yaml", "only-c.yaml")
    assert first["perHour"] < second["perHour"]
    text = run(pods, *GREEDY, "--compare", any_of, only_c).stdout
    assert "DIFFERENCE" in text
    assert f"+{second['perHour'] - first['perHour']:.4f}" in text


def test_spot_without_spot_prices_costs_what_on_demand_does(tmp_path: Path) -> None:
    pods = write(tmp_path / "pods.yaml", deployment("web", 20, "1", "6Gi"))
    both = [
        write(tmp_path / f"{one}.yaml", pool("default", "c", "m", "r", capacity_type=one))
        for one in ("on-demand", "spot")
    ]
    first, second = document(pods, *GREEDY, "--compare", *both)["plans"]
    assert first["perHour"] == second["perHour"]


def dump(path: Path) -> Path:
    """A cluster of four large nodes with two small pods each, as `kubectl get -o yaml` shows it."""
    items: list[dict[str, Any]] = []
    for number in range(4):
        labels = {
            "node.kubernetes.io/instance-type": "m5.4xlarge",
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
        }
        amounts = {"cpu": "16", "memory": "60Gi", "pods": "110"}
        metadata = {"name": f"n{number}", "uid": f"n{number}", "labels": labels}
        status = {"capacity": amounts, "allocatable": amounts}
        items.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status})
        for one in range(2):
            name = f"web-{number}-{one}"
            containers = [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
            metadata = {"name": name, "namespace": "default", "uid": name}
            spec = {"nodeName": f"n{number}", "containers": containers}
            items.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return write(path, {"apiVersion": "v1", "kind": "List", "items": items})


def test_the_monthly_saving_is_named(tmp_path: Path) -> None:
    found = document(dump(tmp_path / "dump.yaml"), *GREEDY, "--current")
    (plan,) = found["plans"]
    assert found["current"]["nodes"] == 4
    assert found["current"]["perHour"] == pytest.approx(4 * 0.768)
    assert plan["pods"]["asked"] == 8
    assert plan["savingPerMonth"] == pytest.approx((4 * 0.768 - plan["perHour"]) * 730)
    text = run(tmp_path / "dump.yaml", *GREEDY, "--current").stdout
    assert f"This plan saves {plan['savingPerMonth']:,.2f} USD per month" in text


def test_a_plan_that_costs_the_same_is_not_called_dearer(tmp_path: Path) -> None:
    """It cost -0.00 USD more per month."""
    path = dump(tmp_path / "dump.yaml")
    (plan,) = document(path, *GREEDY, "--current")["plans"]
    (group,) = plan["nodeGroups"]
    listed = yaml.safe_load(path.read_text())
    listed["items"] = [one for one in listed["items"] if one["kind"] == "Pod" or one["metadata"]["name"] == "n0"]
    for one in listed["items"]:
        if one["kind"] == "Node":
            one["metadata"]["labels"]["node.kubernetes.io/instance-type"] = group["instanceType"]
        else:
            one["spec"]["nodeName"] = "n0"
    text = run(write(path, listed), *GREEDY, "--current").stdout
    assert "This plan costs the same as the current nodes." in text


def unknown(path: Path, *names: str) -> Path:
    """The dump, with nodes of these names of an instance type that no catalogue has."""
    listed = yaml.safe_load(path.read_text())
    for one in listed["items"]:
        if one["metadata"]["name"] in names:
            one["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "z99.mega"
    return write(path, listed)


def test_a_saving_beside_nodes_without_a_price_is_the_least(tmp_path: Path) -> None:
    text = run(unknown(dump(tmp_path / "dump.yaml"), "n0"), *GREEDY, "--current").stdout
    assert "The 3 current nodes with a price cost 2.3040 USD/h" in text
    assert "1 current node has no price in the catalogue and counts as 0: z99.mega (1)." in text
    assert "This plan saves at least " in text


def test_nobody_knows_what_is_saved_where_no_node_has_a_price(tmp_path: Path) -> None:
    path = unknown(dump(tmp_path / "dump.yaml"), "n0", "n1", "n2", "n3")
    text = run(path, *GREEDY, "--current").stdout
    assert "4 current nodes have no price in the catalogue and count as 0: z99.mega (4)." in text
    assert "The saving is not known." in text
    assert "This plan" not in text
    (plan,) = document(path, *GREEDY, "--current")["plans"]
    assert plan["savingPerMonth"] is None


def test_an_unusable_node_pool_is_not_called_missing(tmp_path: Path) -> None:
    bad = pool("default", "m")
    bad["metadata"]["annotations"] = {"dovetail.dev/max-usd-per-hour": "-3"}
    result = run(write(tmp_path / "bad.yaml", deployment("web", 1, "1", "1Gi"), bad), *GREEDY)
    assert result.exit_code == 3
    assert "1 pod: 1 on 1 new node" in result.stdout
    assert "The input has no usable NodePool." in result.stdout
    assert "1 problem; this object is not part of the plan" in result.stderr


def test_an_annotation_that_nobody_understands_is_ignored_and_told(tmp_path: Path) -> None:
    odd = pool("default", "m")
    odd["metadata"]["annotations"] = {"dovetail.dev/packing": "Cheap"}
    text = run(write(tmp_path / "odd.yaml", deployment("web", 1, "1", "1Gi"), odd), *GREEDY).stdout
    assert "'Cheap' is neither 'cost' nor 'greedy'. The annotation is ignored." in " ".join(text.split())


def test_a_directory_stands_for_the_manifests_in_it(tmp_path: Path) -> None:
    result = run(tmp_path, SHOP, *GREEDY)
    assert result.exit_code == 2
    assert f"error: {tmp_path}: is a directory without files that end in .yaml, .yml, .json" in result.stderr
    write(tmp_path / "more.yaml", deployment("more", 3, "1", "1Gi"))
    assert [one["pods"]["asked"] for one in document(tmp_path, *GREEDY)["plans"]] == [3]


def test_pods_on_nodes_stay_where_nobody_asks_to_compare(tmp_path: Path) -> None:
    more = write(tmp_path / "more.yaml", deployment("more", 3, "1", "1Gi"))
    (plan,) = document(dump(tmp_path / "dump.yaml"), more, *GREEDY)["plans"]
    assert plan["pods"] == {"asked": 3, "onNewNodes": 0, "onExistingNodes": 3, "withoutNode": 0, "refusingNodePools": 0}
    assert plan["perHour"] == 0


def test_mistakes_are_told_at_the_end_and_the_rest_is_planned(tmp_path: Path) -> None:
    bad = write(
        tmp_path / "bad.yaml",
        deployment("good", 2, "1", "1Gi"),
        {**deployment("bad", 1, "1", "1Gi"), "spec": {"replicas": "x"}},
    )
    result = run(bad, tmp_path / "missing.yaml", *GREEDY)
    assert result.exit_code == 2
    assert "2 pods: 2 on 1 new node" in result.stdout
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"error: {bad}: Deployment default/bad: spec.replicas: Expected")
    assert lines[1].startswith(f"error: {tmp_path}/missing.yaml: cannot be read: No such file or directory")
    assert "2 problems" in lines[2]
    assert len(document(bad, *GREEDY, status=3)["problems"]) == 1
    assert run(bad, *GREEDY).stderr.splitlines()[-1] == "1 problem; this object is not part of the plan"


def test_wrong_use_is_status_2(tmp_path: Path) -> None:
    assert run().exit_code == 2
    assert "--kubeconfig" in run().stderr
    assert run(SHOP, "--compare", SHOP, SHOP, "--svg", tmp_path / "x.svg").exit_code == 2
    assert run(SHOP, "--compare", SHOP, SHOP, "--html", tmp_path / "x.html").exit_code == 2
    assert run(SHOP, "--seconds", 0).exit_code == 2


def test_current_needs_nodes() -> None:
    with pytest.raises(UserError, match="Add the output of `kubectl get nodes -o yaml`"):
        run(SHOP, "--current", *GREEDY)


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    odd = write(tmp_path / "odd.yaml", deployment("\x1b[31mred", 2, "1000", "1Gi"))
    result = run(odd, *GREEDY)
    assert "\x1b" not in result.stdout
    assert "\x1b" not in result.stderr


def overlay(name: str, **spec: Any) -> dict[str, Any]:
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    body = {"requirements": requirements, **spec}
    return {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": body}


def test_overlays_change_prices_and_it_is_said(tmp_path: Path) -> None:
    web = deployment("web", 20, "1", "3Gi")
    plain = document(write(tmp_path / "plain.yaml", web, pool("default", "m")), *GREEDY)
    path = write(tmp_path / "overlay.yaml", web, pool("default", "m"), overlay("half", priceAdjustment="-50%"))
    (before,), (after,) = plain["plans"], document(path, *GREEDY)["plans"]
    assert after["perHour"] == pytest.approx(before["perHour"] / 2)
    text = " ".join(run(path, *GREEDY).stdout.split())
    assert "NodeOverlays are applied; the provisioner does so with --feature-gates=NodeOverlay=true." in text
    assert "do not affect the plan" not in text


def test_overlays_that_are_not_in_force_are_named(tmp_path: Path) -> None:
    both = overlay("odd", price="0.1", priceAdjustment="-50%")
    path = write(tmp_path / "overlay.yaml", deployment("web", 2, "1", "1Gi"), pool("default", "m"), both)
    result = run(path, *GREEDY)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "NodeOverlay \"odd\" is not applied: spec: cannot set both 'price' and 'priceAdjustment'." in text


def test_nodes_of_a_static_node_pool_take_pods_and_are_not_bought(tmp_path: Path) -> None:
    fixed = pool("fixed", "m")
    fixed["spec"]["replicas"] = 2
    size = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}
    fixed["spec"]["template"]["spec"]["requirements"].append(size)
    web = deployment("web", 10, "1", "1Gi")
    alone = document(write(tmp_path / "alone.yaml", web, pool("default", "m")), *GREEDY)
    path = write(tmp_path / "static.yaml", web, pool("default", "m"), fixed)
    (before,), (after,) = alone["plans"], document(path, *GREEDY)["plans"]
    assert (before["pods"]["onNewNodes"], before["pods"]["onExistingNodes"]) == (10, 0)
    assert (after["pods"]["onNewNodes"], after["pods"]["onExistingNodes"]) == (4, 6)  # three on each
    text = " ".join(run(path, *GREEDY).stdout.split())
    assert (
        'NodePool "fixed" is static: its 2 nodes are always there (m5.xlarge, 0.1920 an hour each); pods can use them, '
        "and their cost is not shown." in text
    )


def test_an_empty_input_is_told(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    with pytest.raises(InputError, match="contains no objects"):
        run(path, *GREEDY)


def gang_job(name: str, pods: int, cpu: str, *, group: str = "") -> dict[str, Any]:
    """A Job whose pods are a gang, by annotation or of a PodGroup."""
    notes = {} if group else {"annotations": {"dovetail.dev/gang": name}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {"metadata": notes, "spec": spec}},
    }


def test_groups_of_pods_are_blocks_with_nodes_price_domain_and_money_at_risk(tmp_path: Path) -> None:
    rack = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ring"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
        },
    }
    pods = write(
        tmp_path / "pods.yaml",
        gang_job("train", 2, "200"),
        gang_job("huge", 2, "5000"),
        rack,
        gang_job("ring", 2, "200", group="ring"),
    )
    arguments = (pods, "--catalogue", "kwok", "--greedy")
    (plan,) = document(*arguments)["plans"]
    huge, train, ring = plan["gangs"]
    assert [one["gang"] for one in plan["gangs"]] == [
        "gang default/huge",
        "gang default/train",
        "PodGroup default/ring",
    ]
    assert (huge["placed"], huge["newNodes"], huge["perHour"], huge["atRisk"]) == (0, 0, 0, 0)
    assert huge["reasons"][0].startswith("2 pods of gang default/huge need nodes at the same time")
    for one in (train, ring):
        assert (one["pods"], one["needed"], one["placed"], one["newNodes"]) == (2, 2, 2, 2)
        assert one["atRisk"] == pytest.approx(one["perHour"] / 2 * 300 / 3600, abs=1e-5)
    assert (train["topologyKey"], ring["topologyKey"], len(ring["domains"])) == ("", "topology.kubernetes.io/zone", 1)
    assert plan["perHour"] == pytest.approx(train["perHour"] + ring["perHour"])
    text = run(*arguments).output
    assert "gang default/huge: 2 pods, 2 needed at the same time\n  no pod is placed: 2 pods of gang" in text
    assert (
        f"  2 placed on 2 new nodes, {train['perHour']:.4f} USD/h\n  money at risk: {train['atRisk']:.4f} USD" in text
    )
    assert f"USD/h, topology.kubernetes.io/zone: {ring['domains'][0]}\n" in text


def test_a_plan_without_groups_of_pods_says_nothing_of_them() -> None:
    assert document(SHOP, "--catalogue", "kwok", *GREEDY)["plans"][0]["gangs"] == []
    assert "money at risk" not in run(SHOP, "--catalogue", "kwok", *GREEDY).output
