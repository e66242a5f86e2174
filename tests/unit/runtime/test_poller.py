import threading

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from provisioner.cloudprovider.errors import CloudError
from provisioner.kube.errors import ServerError
from provisioner.runtime.poller import ApiPoller

FAILURES = {
    "an error of the cloud": CloudError("down"),
    "an answer of AWS": ClientError({"Error": {"Code": "UnauthorizedOperation"}}, "DescribeInstances"),
    "no way to AWS": EndpointConnectionError(endpoint_url="https://ec2"),
    "an error of the API server": ServerError(500, "InternalError", "down"),
    "a defect": RuntimeError("oops"),
}


@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_after_a_failure_it_goes_on(error: Exception) -> None:
    def poll() -> float:
        raise error

    assert ApiPoller("test", poll, retry=3.0).once() == 3.0


def test_a_round_says_when_the_next_one_is_due() -> None:
    assert ApiPoller("test", lambda: 7.0).once() == 7.0


def test_it_works_until_it_is_stopped() -> None:
    rounds, enough = [], threading.Event()

    def poll() -> float:
        rounds.append(1)
        if len(rounds) >= 3:
            enough.set()
        return 0.0

    poller = ApiPoller("test", poll)
    poller.start()
    assert enough.wait(10)
    poller.stop()
    assert len(rounds) >= 3
