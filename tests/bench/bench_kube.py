"""Loading 50,000 pods into a reflector's store, and what the connection itself costs; each in a process of its own."""

import json
import pathlib
import subprocess
import sys

import pytest

from provisioner.lab.harness.results import Figure, at_most, write

pytestmark = pytest.mark.bench

ROOT = pathlib.Path(__file__).parents[2]
PODS = 50_000

COMMON = """
import json, os, sys, time

def pss_mib():
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:")) / 1024
"""

IMPORTS = (
    COMMON
    + """
before, cpu = pss_mib(), time.process_time()
import provisioner.kube.client, provisioner.kube.watch
from provisioner.kube import config
config._official()
print(json.dumps({"pss": pss_mib(), "cpu": time.process_time() - cpu}))
"""
)

ORDINARY = (
    COMMON
    + """
cpu = time.process_time()
import kubernetes
print(json.dumps({"pss": pss_mib(), "cpu": time.process_time() - cpu}))
"""
)

# Real pods are 6 KB of JSON, two thirds of them managedFields, and come from some hundreds of Deployments.
LOAD = (
    COMMON
    + """
from provisioner.apis.pods import Pod
from provisioner.kube import resources
from provisioner.kube.watch import Reflector
from provisioner.support.garbage import bulk_load
from tests.support.kube import FakeApi, FakeAnswer, bookmark, event
from tests.support.pods import wire_pod

count, deployments, nodes = int(sys.argv[1]), 500, 1000
templates = []
for number in range(deployments):
    pod = wire_pod(number, spec__nodeName="@NODE@")
    pod["metadata"] |= {
        "name": f"app-{number}-7d9c5b8f6d-@ID@", "uid": "00000000-0000-4000-8000-@LONGID@", "resourceVersion": "1@LONGID@",
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:field-{i}": {} for i in range(180)}}],
    }
    pod["spec"]["priority"] = number
    templates.append(event("ADDED", pod))
size = sum(map(len, templates)) / len(templates)

def pieces():
    for number in range(count):
        line = templates[number % deployments]
        yield line.replace(b"@NODE@", b"node-%04d" % (number % nodes)).replace(b"@LONGID@", b"%012d" % number).replace(b"@ID@", b"%05d" % number)
    yield bookmark(10**9, end=True)

cpu = time.process_time()
for piece in pieces():
    pass
making = time.process_time() - cpu

collected = len(sys.argv) > 2
reflector = Reflector(FakeApi(FakeAnswer(pieces=pieces())), resources.PODS)
before, cpu = pss_mib(), time.process_time()
if collected:
    reflector.step()
else:
    with bulk_load():
        reflector.step()
cpu = time.process_time() - cpu - making
assert reflector.synced.is_set() and len(reflector.store) == count and not reflector.objects.decode_failures, reflector
assert sum(pod.node_name == "node-0007" for pod in reflector.store.list()) == count // nodes
print(json.dumps({"cpu": cpu, "pss": pss_mib(), "grown": pss_mib() - before, "size": size}))
"""
)


def run(code: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def test_loading_and_connecting() -> None:
    lean, ordinary = run(IMPORTS), run(ORDINARY)
    load, collected = run(LOAD, str(PODS)), run(LOAD, str(PODS), "collected")
    figures = [
        Figure("imports of kube, PSS of the process", lean["pss"], "MiB", at_most(45)),
        Figure("imports of kube", lean["cpu"], "s of CPU", at_most(0.6)),
        Figure("import kubernetes the ordinary way, PSS of the process", ordinary["pss"], "MiB"),
        Figure("import kubernetes the ordinary way", ordinary["cpu"], "s of CPU"),
        Figure("50,000 pods decoded and indexed", load["cpu"], "s of CPU", at_most(6)),
        Figure("50,000 pods decoded and indexed, a pod", load["cpu"] / PODS * 1e6, "us of CPU", at_most(120)),
        Figure("50,000 pods decoded and indexed, garbage collector on", collected["cpu"], "s of CPU"),
        Figure("50,000 pods decoded and indexed, PSS of the process", load["pss"], "MiB", at_most(250)),
        Figure("50,000 pods, growth of PSS for one", load["grown"] * 1024 / PODS, "KiB", at_most(4)),
        Figure("50,000 pods, JSON of one", load["size"] / 1024, "KiB"),
    ]
    for figure in figures:
        print(figure.line())
    write(ROOT / "results", "kube", figures)
    assert load["cpu"] < 30  # the goals are printed; these are for a real regression
    assert load["pss"] < 600
