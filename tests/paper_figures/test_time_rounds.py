"""A few rounds at the paper's scale."""

import pytest

from paper_figures.kit.comparison import arm
from paper_figures.kit.paper import Setting
from paper_figures.time_rounds import IMAGES, tables_at_paper_scale, time_rounds
from topofl import config


def test_tables_are_those_of_the_paper(tmp_path):
    (tmp_path / "data_batch_1").touch()
    tables = tables_at_paper_scale("dfedpgp-tab01", "dfedpgp", tmp_path)
    assert tables["model"] == {"name": "resnet18_gn"}
    assert (tables["data"]["n"], tables["data"]["verify"], tables["run"]["rounds"]) == (
        100,
        False,
        500,
    )
    assert (tables["algorithm"]["epochs"], tables["algorithm"]["batch_size"]) == (5, 128)
    with pytest.raises(
        ValueError, match=r"`algorithm` must be one of dfedpgp-tab01's, dfedavgm, .*got 'adam'"
    ):
        tables_at_paper_scale("dfedpgp-tab01", "adam", tmp_path)


def test_rounds_are_timed_and_scaled_up():
    (run,) = arm(Setting("smoke", (0,)), "CIFAR-10, Dir(0.3)", "DFedPGP")
    rows = dict(
        time_rounds(
            {**run.tables, "algorithm": {**run.tables["algorithm"], "epochs": 2}}, 3, 1
        ).rows
    )
    seconds = [value for name, value in rows.items() if name.startswith("seconds of round")]
    assert len(seconds) == 3
    assert all(0 < value < 30 for value in seconds)
    trained = sum(map(len, config.build(run.tables).clients.train))
    (days,) = [value for name, value in rows.items() if name.startswith("days")]
    images = IMAGES * sum(seconds) / 3 * 2 * 2 / 86_400 / days
    assert images == pytest.approx(trained)
    before = rows["memory before the run, GiB"]
    assert rows["peak memory, GiB"] > 0.99 * before > 0.05  # the kernel's counts are not exact
