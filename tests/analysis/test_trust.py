"""The page of trust says what the results in the tree say."""

import json

from analysis import trust


def test_the_page_is_as_written():
    assert (trust.FOLDER / "trust.md").read_text("utf-8") == trust.page(), (
        "run python -m analysis.trust"
    )


def test_comparisons_with_public_code_are_read_from_their_tables():
    found = list(trust.differences())
    assert len(found) > 40
    assert {3e-16, 0.018, 1.5e-7} <= set(found)
    assert found.count(0) == 3, "sign_flip, and top_k and random_k, whose row has bars in a cell"


def test_the_best_peer_has_the_shortest_rounds_and_ratios_are_those_of_turns():
    def runs(*seconds):
        return [{"rounds": [9.0, each, each]} for each in seconds]

    record = {
        "names": {"slow": "slow 1", "fast": "fast 2"},
        "runs": {
            "topofl": runs(1, 2, 3),
            "slow": runs(8, 8, 8),
            "fast": runs(4, 4, 5),
            "no": "n/a",
        },
    }
    assert trust._best_peer(json.loads(json.dumps(record))) == (
        "fast 2",
        [0.25, 0.5, 0.6],
    )
