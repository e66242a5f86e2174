import subprocess
import sys

from provisioner.cli.harness.workload import REPOSITORY


def test_without_aws_the_program_loads_nothing_of_its_sdk() -> None:
    look = "import sys, provisioner.controllers.main; print('botocore' in sys.modules, 'provisioner.controllers.main' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", look], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.split() == ["False", "True"]
