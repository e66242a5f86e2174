"""Fixtures of tests that launch against the emulator; a module asks for them by `pytest_plugins`."""

from collections.abc import Iterator

import pytest

from tests.support.ec2 import Ec2
from tests.support.launching import LAG, Ground, alive, known_everywhere


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ec2]:
    """An EC2 for one module, whose reads are behind."""
    with Ec2.start(data="small", rate_limits=False, lag=LAG) as made:
        yield made


@pytest.fixture(scope="module")
def ground(emulator: Ec2) -> Iterator[Ground]:
    """What all rigs of the module share."""
    with Ground.of(emulator) as made:
        yield made


@pytest.fixture
def fresh_ground(emulator: Ec2) -> Iterator[Ground]:
    """For tests that teach the table of shortages something."""
    with Ground.of(emulator) as made:
        yield made


@pytest.fixture
def ec2(emulator: Ec2, ground: Ground) -> Iterator[Ec2]:
    """The emulator without faults and without instances of other tests."""
    emulator.script()
    old = sorted(alive(emulator))
    if old:
        known_everywhere(emulator)
        ground.aws.client("ec2").terminate_instances(InstanceIds=old)
    emulator.reset_calls()
    yield emulator
    emulator.script()
