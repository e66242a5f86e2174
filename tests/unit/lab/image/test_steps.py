"""The image is built by one list of steps, and each names what it takes by a hash."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.lab.image import contents, debian, wheels
from provisioner.lab.image.configuration import ENVIRONMENT, LABELS, PROCESS
from provisioner.lab.image.fetching import FetchError, fetched
from provisioner.lab.image.steps import BUILDING, LAYERS, REQUIREMENTS, SBOM, SOURCES

ROOT = Path(__file__).parents[4]
DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


def said(instruction: str) -> list[str]:
    """What stands behind an instruction of the Dockerfile, each time."""
    return re.findall(rf"^{instruction} (.+)$", DOCKERFILE, re.MULTILINE)


def test_the_dockerfile_runs_the_steps_and_no_other() -> None:
    assert said("RUN") == ["python -m provisioner.lab.image files ${TARGETARCH:-amd64} /image"]
    assert [one.split()[0] for one in said("COPY") if not one.startswith("--")] == [REQUIREMENTS, *sorted_sources()]
    assert said("COPY --from=build") == [f"/image/{layer} /" for layer in LAYERS]


def sorted_sources() -> list[str]:
    files = [name for name in SOURCES if (ROOT / name).is_file()]
    return [*sorted(files, reverse=True), *sorted(set(SOURCES) - set(files))]


def test_the_dockerfile_starts_from_a_digest_and_from_nothing() -> None:
    assert re.search(r"^ARG BUILDER=\S+@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert said("FROM") == ["--platform=$BUILDPLATFORM ${BUILDER} AS build", "scratch"]


def test_the_dockerfile_says_of_the_image_what_the_layout_says() -> None:
    assert dict(re.findall(r'(\S+?)="([^"]+)"', said("LABEL")[0])) == LABELS
    assert dict(one.split("=", 1) for one in said("ENV")[0].split()) == ENVIRONMENT
    assert (said("USER"), said("WORKDIR")[-1:]) == ([PROCESS["User"]], [PROCESS["WorkingDir"]])
    assert (json.loads(said("ENTRYPOINT")[0]), json.loads(said("CMD")[0])) == (PROCESS["Entrypoint"], PROCESS["Cmd"])


@pytest.mark.parametrize("architecture", sorted(wheels.MACHINES))
def test_debian_s_packages_are_named_with_hashes(architecture: str) -> None:
    found = [package for package, _ in debian.packages(architecture)]
    assert [package.name for package in found] == sorted(debian.NAMES), "run `make lock`"
    for package in found:
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256), package.name
        assert package.path.endswith((f"_{architecture}.deb", "_all.deb")), package.path
        assert package.path.startswith(("debian/pool/", "debian-security/pool/")), package.path


def test_both_architectures_have_the_same_versions() -> None:
    one, other = ({package.name: package.version for package, _ in debian.packages(each)} for each in wheels.MACHINES)
    assert one == other


@pytest.mark.parametrize("path", [BUILDING, SBOM], ids=lambda path: path.name)
def test_what_builds_is_named_with_hashes(path: Path) -> None:
    blocks = [block for block in re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip()) if block[0] != "#"]
    assert blocks
    for block in blocks:
        assert re.match(r"[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", block), block


def test_every_installation_checks_hashes_or_asks_no_index() -> None:
    here = Path("/nowhere")
    for command in (wheels.tools(BUILDING, here), wheels.dependencies("arm64", here, here)):
        assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement"} <= set(command)
    for command in (wheels.own_wheel(here, here), wheels.own(here, here)):
        assert {"--no-index", "--no-deps"} <= set(command)
    # and there is no installation but these
    tree = ast.parse((ROOT / "provisioner/lab/image/steps.py").read_text(encoding="utf-8"))
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    asked = {one.removeprefix("wheels.") for one in calls if one.startswith("wheels.")}
    assert asked == {"tools", "dependencies", "own_wheel", "own", "link_twins", "write_launchers", "required"}


def test_a_file_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "file").write_text("another", encoding="utf-8")
    with pytest.raises(FetchError, match="sha256 is ae448ac86c4e"):
        fetched([(tmp_path / "file").as_uri()], "0" * 64)


def test_the_steps_need_nothing_that_is_installed() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import provisioner.lab.image.__main__"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def test_the_image_has_the_models_of_the_services_that_the_code_calls() -> None:
    assert contents.services_called(ROOT) == {
        *("arc-zonal-shift", "ec2", "ecr", "eks", "iam", "pricing", "s3", "sqs", "ssm"),
        *("signin", "sso", "sso-oidc", "sts"),  # botocore's own, for credentials
    }


def test_the_image_has_the_models_of_the_services_that_its_policies_name() -> None:
    """What the controller may ask is what it asks: a service that only a policy names would be called by a name that the search does not see."""
    text = (ROOT / "manifests/aws/cloudformation.yaml").read_text(encoding="utf-8")
    allowed = set(re.findall(r"\b([a-z0-9-]+):[A-Z]\w+", text))
    assert len(allowed) >= 5
    assert allowed - {"aws", "kms"} <= contents.services_called(ROOT)  # KMS is asked by EC2; aws: begins a condition


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/lib/python3.11/ssl.py", True),
        ("usr/lib/python3.11/test/test_ssl.py", False),
        ("usr/share/doc/libc6/copyright", True),
        ("usr/share/doc/libc6/changelog.gz", False),
        (f"{contents.SITE}/kubernetes/config/kube_config.py", True),
        (f"{contents.SITE}/kubernetes/client/models/v1_pod.py", False),
        (f"{contents.SITE}/kubernetes/client/api/core_v1_api.py", False),
        (f"{contents.SITE}/botocore/data/ec2/2016-11-15/service-2.json.gz", True),
        (f"{contents.SITE}/botocore/data/s3/2006-03-01/service-2.json.gz", False),
        (f"{contents.SITE}/botocore/data/endpoints.json", True),
        (f"{contents.SITE}/numpy/_core/tests/test_dtype.py", False),
        (f"{contents.SITE}/provisioner/cli/main.py", True),
        (f"{contents.SITE}/dovetail-0.1.0.dist-info/entry_points.txt", True),
        (f"{contents.SITE}/dovetail-0.1.0.dist-info/direct_url.json", False),
    ],
)
def test_what_goes_into_the_image(path: str, kept: bool) -> None:
    assert contents.is_kept(path, {"ec2"}) is kept


def test_requirements_are_kept_whole_but_for_those_that_nothing_imports() -> None:
    text = (ROOT / REQUIREMENTS).read_text(encoding="utf-8")
    kept = set(re.findall(r"^([\w.-]+)==", wheels.required(text), re.MULTILINE))
    assert set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)) - kept == set(contents.NOT_INSTALLED)


def test_a_library_under_two_names_is_one_file(tmp_path: Path) -> None:
    content = b"\x7fELF" * 50_000
    for name, its in (
        ("libhighs.so.1", content),
        ("libhighs.so.1.15.1", content),
        ("libother.so.1", content),
        ("small.so.1", b""),
    ):
        (tmp_path / name).write_bytes(its)
    wheels.link_twins(tmp_path)
    assert {path.name: str(path.readlink()) for path in tmp_path.iterdir() if path.is_symlink()} == {
        "libhighs.so.1": "libhighs.so.1.15.1"
    }
    assert (tmp_path / "libhighs.so.1").read_bytes() == content
