import pytest

from provisioner.support import metrics


def test_a_declared_metric_is_rendered_under_its_own_name() -> None:
    metrics.counter("dovetail_test_things_total", "Things.", ("kind",)).labels("a").inc(2)
    metrics.gauge("dovetail_test_level", "Level.").set(3)
    metrics.histogram("dovetail_test_seconds", "Seconds.").observe(0.2)
    text = b"".join(metrics.chunks()).decode()
    assert 'dovetail_test_things_total{kind="a"} 2.0\n' in text
    assert "dovetail_test_level 3.0\n" in text
    assert 'dovetail_test_seconds_bucket{le="0.15"} 0.0\n' in text
    assert 'dovetail_test_seconds_bucket{le="0.2"} 1.0\n' in text
    own = [line for line in text.splitlines() if "dovetail_test_" in line]  # other tests of this process declare theirs
    assert not [line for line in own if "_created" in line]


def test_declaring_again_gives_the_same_metric() -> None:
    assert metrics.gauge("dovetail_test_same", "x") is metrics.gauge("dovetail_test_same", "x")


def test_a_name_means_one_thing() -> None:
    metrics.gauge("dovetail_test_taken", "x", ("a",))
    with pytest.raises(ValueError, match="is declared as Gauge of \\('a',\\) already"):
        metrics.gauge("dovetail_test_taken", "x", ("b",))
    with pytest.raises(ValueError, match="is declared as Gauge"):
        metrics.histogram("dovetail_test_taken", "x", ("a",))


def test_a_counter_says_that_it_is_one() -> None:
    with pytest.raises(ValueError, match="counter 'dovetail_things' must end in _total"):
        metrics.counter("dovetail_things", "x")


def test_series_of_an_object_go_with_it() -> None:
    gauge = metrics.gauge("dovetail_test_usage", "x", ("pool", "resource"))
    series = metrics.GaugeSeries(gauge)
    series.replace("a", [(("a", "cpu"), 1), (("a", "memory"), 2)])
    series.replace("b", [(("b", "cpu"), 3)])
    series.replace("a", [(("a", "cpu"), 4)])
    series.replace("b", ())
    lines = [
        line for line in b"".join(metrics.chunks()).decode().splitlines() if line.startswith("dovetail_test_usage")
    ]
    assert lines == ['dovetail_test_usage{pool="a",resource="cpu"} 4.0']


def test_buckets_are_karpenters() -> None:
    assert (len(metrics.DURATION_BUCKETS), metrics.DURATION_BUCKETS[0], metrics.DURATION_BUCKETS[-1]) == (
        45,
        0.005,
        600.0,
    )
    assert list(metrics.DURATION_BUCKETS) == sorted(metrics.DURATION_BUCKETS)


def test_a_summary_has_quantiles_of_what_was_observed_and_keeps_a_bounded_number() -> None:
    latency = metrics.summary("test_summary_seconds", "For this test.", ("pool",))
    for value in range(2 * metrics.SUMMARY_SAMPLES):
        latency.observe(float(value), "a")
    lines = list(latency.lines())
    assert 'test_summary_seconds{pool="a",quantile="0"} 1000.0\n' in lines
    assert 'test_summary_seconds{pool="a",quantile="0.5"} 1500.0\n' in lines
    assert 'test_summary_seconds{pool="a",quantile="1"} 1999.0\n' in lines
    assert 'test_summary_seconds_count{pool="a"} 2000\n' in lines
    assert metrics.summary("test_summary_seconds", "For this test.", ("pool",)) is latency
    with pytest.raises(ValueError, match="labels"):
        metrics.summary("test_summary_seconds", "For this test.")


def test_a_scrape_comes_in_pieces() -> None:
    remove = metrics.written_by(lambda: (f"test_piece_{number} 1\n" for number in range(10_000)))
    try:
        pieces = list(metrics.chunks())
    finally:
        remove()
    assert len(pieces) >= 3
    assert max(len(piece) for piece in pieces[1:]) < 2 * metrics.CHUNK_BYTES
    assert b"".join(pieces).endswith(b"test_piece_9999 1\n")
