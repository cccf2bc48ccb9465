"""Hardware: checks, text, and published latencies."""

import numpy as np
import pytest

from topofl import clocks, data, metrics, models
from topofl.metrics import AZURE_REGIONS, Hardware, azure_latency
from topofl.metrics.hardware import as_hardware


@pytest.mark.parametrize("name", ["bandwidth", "path_bandwidth"])
def test_an_infinite_bandwidth_is_no_limit(name):
    unlimited = Hardware(compute=1, **{name: np.inf})
    assert getattr(unlimited, name) is None
    assert unlimited.settings == Hardware(compute=1).settings
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        Hardware(compute=1, **{name: -np.inf})


def test_a_server_without_limit_may_be_given_by_any_kind_of_number():
    for infinity in (np.inf, np.float32("inf"), np.float64("inf")):
        assert Hardware(compute=1, server_bandwidth=infinity).server_bandwidth == np.inf


def test_text_dictionaries_and_objects_are_equal():
    text = "Hardware(compute=exponential(0.5), latency=0.1, bandwidth=1e6, messages='parallel')"
    table = {"compute": "exponential(0.5)", "latency": 0.1, "bandwidth": 1e6}
    direct = Hardware(clocks.exponential(0.5), 0.1, 1e6, messages="parallel")
    assert as_hardware(direct) is direct
    assert as_hardware(text).settings == direct.settings
    assert as_hardware(table | {"messages": "parallel"}).settings == direct.settings
    assert repr(Hardware(compute=1)) == "Hardware(compute=1)"
    assert direct.is_random
    assert not Hardware(compute=[1.0, 2.0]).is_random
    own = clocks.Times(1.0, lambda rng, count: rng.uniform(0.5, 1.5, count))
    assert Hardware(compute=own).is_random


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"compute": 0.0}, "`compute` must be finite seconds above 0, got 0"),
        ({"compute": np.eye(3)}, "`compute` must be one number or one per node"),
        ({"compute": 1, "latency": -1}, "`latency` must be"),
        ({"compute": 1, "latency": [1.0, 2.0]}, r"`latency` must be one number or one per pair"),
        ({"compute": 1, "latency": [[0, 1], [np.nan, 0]]}, "`latency` must be finite numbers"),
        (
            {"compute": 1, "latency": [[0, 1], [-2, 0]]},
            r"at least 0, got -2 at \(1, 0\); give 0 where no messages travel",
        ),
        (
            {"compute": 1, "bandwidth": [5.0, 0.0]},
            "numbers above 0, got 0 for machine 1; give infinity where nothing limits messages",
        ),
        ({"compute": 1, "bandwidth": 0}, "`bandwidth` must be"),
        ({"compute": 1, "bandwidth": np.eye(2)}, "`bandwidth` must be one number or one per mach"),
        ({"compute": 1, "path_bandwidth": np.eye(2)}, "`path_bandwidth` must be numbers above 0"),
        ({"compute": 1, "bandwidth": [5.0, np.nan]}, "above 0, got nan for machine 1"),
        ({"compute": 1, "bandwidth": [5.0, -np.inf]}, "above 0, got -inf for machine 1"),
        (
            {"compute": 1, "path_bandwidth": [[np.inf, np.nan], [1.0, np.inf]]},
            r"`path_bandwidth` must be numbers above 0, got nan at \(0, 1\)",
        ),
        (
            {"compute": 1, "latency": [[0, np.inf], [0, 0]]},
            r"`latency` must be finite numbers of at least 0, got inf at \(0, 1\)",
        ),
        (
            {"compute": 1, "server_bandwidth": -np.inf},
            "`server_bandwidth` must be a number above 0, or infinity, got -inf",
        ),
        ({"compute": 1, "server_bandwidth": np.nan}, "above 0, or infinity, got nan"),
        ({"compute": 1, "server_bandwidth": -1}, "above 0, or infinity, got -1"),
        (
            {"compute": 1, "bandwidth": -np.inf},
            "`bandwidth` must be a number above 0, or infinity, got -inf",
        ),
        ({"compute": 1, "overhead": -1}, "`overhead` must be"),
        ({"compute": 1, "messages": "both"}, "`messages` must be one of 'serial', 'parallel'"),
        ({"compute": 1, "copies": "edge"}, "`copies` must be one of 'node', 'machine'"),
        ({"compute": 1, "processors": 0}, "`processors` must be at least 1"),
        ({"compute": 1, "placement": []}, "`placement` must have one machine per node"),
        ({"compute": 1, "placement": [0, -1]}, "`placement` must be in 0"),
        ({"compute": 1, "server_bandwidth": 0}, "`server_bandwidth` must be"),
        (
            {"compute": 1, "latency": np.zeros((3, 3)), "bandwidth": [1.0, 2.0]},
            "`bandwidth` must be one number or a table for all 3 machines",
        ),
        (
            {"compute": 1, "latency": np.zeros((2, 2)), "placement": [0, 2]},
            "`latency` must be one number or a table for all 3 machines",
        ),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Hardware(**arguments)


def test_refused_descriptions():
    with pytest.raises(ValueError, match=r"`hardware` must only have the keys .* got 'delay'"):
        as_hardware({"compute": 1.0, "delay": 1.0})
    with pytest.raises(ValueError, match="`hardware` must have the key compute"):
        as_hardware({"latency": 1.0})
    with pytest.raises(TypeError, match="`hardware` must be a Hardware such as"):
        as_hardware(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`hardware` must be such as Hardware"):
        as_hardware("Hardware(speed=3)")


def test_published_latencies_are_consistent():
    latency = azure_latency()
    assert latency.shape == (len(AZURE_REGIONS),) * 2
    assert not latency.diagonal().any()
    assert (latency[~np.eye(10, dtype=bool)] > 0).all()
    # Two directions of a path are measured apart, and differ by 4 ms of the round trip at most.
    round_trips = np.rint(2000 * latency)
    assert np.abs(round_trips - round_trips.T).max() <= 4
    # No signal is faster than light in glass, some 200 km per ms: London to Sydney is 17,000 km.
    uk, sydney = AZURE_REGIONS.index("UK South"), AZURE_REGIONS.index("Australia East")
    assert latency[uk, sydney] == 0.129 > 17_000 / 200_000


def test_regions_may_repeat():
    some = azure_latency(["Japan East", "East US", "Japan East"], within=0.001)
    assert some[0, 2] == some[2, 0] == 0.001
    assert some[0, 1] == some[2, 1] == azure_latency(["Japan East", "East US"])[0, 1] == 0.079
    with pytest.raises(ValueError, match="`within` must be given if a region repeats"):
        azure_latency(["Japan East", "Japan East"])
    with pytest.raises(ValueError, match=r"`regions` must be one of .*; did you mean 'East US'"):
        azure_latency(["East USA"])


def test_measured_steps():
    clients = data.iid(data.digits(), n=4, seed=0)
    model = models.logistic_regression(64)
    before = [p.detach().clone() for p in model.parameters()]
    assert metrics.step_seconds(model, clients, batch_size=8, steps=2) > 0
    assert all((p == q).all() for p, q in zip(model.parameters(), before, strict=True))
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module"):
        metrics.step_seconds(None, clients, batch_size=8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`steps` must be"):
        metrics.step_seconds(model, clients, batch_size=8, steps=0)


def test_a_table_of_pairs_as_bandwidth_is_answered_with_its_name():
    with pytest.raises(ValueError, match=r"got shape \(3, 3\); a table of pairs is path_bandwidth"):
        Hardware(1.0, bandwidth=np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"shape \(m, m\), got shape \(2, 3\)$"):
        Hardware(1.0, path_bandwidth=np.ones((2, 3)))
