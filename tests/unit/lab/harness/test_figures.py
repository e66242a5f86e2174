from provisioner.apis import names
from provisioner.lab.harness import figures
from provisioner.lab.harness.figures import ListPrices
from tests.support.clock import FakeClock

PAGE = """# HELP aws_sdk_go_request_attempt_total Attempts to call AWS.
# TYPE aws_sdk_go_request_attempt_total counter
aws_sdk_go_request_attempt_total{action="CreateFleet",service="EC2",code="200"} 3.0
aws_sdk_go_request_attempt_total{action="CreateFleet",service="EC2",code="503"} 1.0
aws_sdk_go_request_attempt_total{action="GetProducts",service="Pricing",code="200"} 28.0
aws_sdk_go_request_attempt_total_other{action="GetProducts",service="Pricing"} 1.0
karpenter_cloudprovider_instance_type_offering_price_estimate{capacity_type="spot",instance_type="m5.large",zone="a"} 0.03
"""


def test_calls_are_counted_by_action_whatever_was_answered() -> None:
    assert figures.calls(PAGE) == {"ec2:CreateFleet": 4, "pricing:GetProducts": 28}


def test_prices_by_offering() -> None:
    assert figures.prices(PAGE) == {("m5.large", "a", "spot"): 0.03}


def test_a_page_that_cannot_be_read_is_not_asked_for_at_every_node() -> None:
    clock = FakeClock()
    prices = ListPrices("http://127.0.0.1:9/metrics", clock)
    labels = {names.INSTANCE_TYPE_LABEL: "m5.large", names.ZONE_LABEL: "a", names.CAPACITY_TYPE_LABEL: "spot"}
    assert prices(labels) == 0.0
    assert prices(labels) == 0.0


def test_requests_to_the_api_server_are_summed_over_methods_and_codes() -> None:
    lines = ('requests_total{code="200",method="GET"} 2.0', 'requests_total{code="409",method="PATCH"} 3.0')
    assert figures.requests("\n".join(f"dovetail_kube_{line}" for line in lines)) == 5
    assert figures.requests("") == 0
