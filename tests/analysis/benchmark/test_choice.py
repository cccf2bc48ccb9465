"""The benchmark of choices counts what is tried."""

from analysis.benchmark import choice


def test_as_many_models_are_tried_as_are_counted():
    scale = choice.ChoiceSizes(n=4, validation=6, budgets=(None, 1), threads=1, repeats=1)
    table = choice.measure(scale)
    tried = table.column("models tried")
    assert tried[0] == 4 * (2 * 3 + 2)
    assert 4 * 4 <= tried[1] <= tried[0]
    assert all(ratio > 0 for ratio in table.column("choice / bare"))
