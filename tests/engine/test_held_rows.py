"""Equal rows are stored once until one is written, and are always those of a matrix."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl.engine.population import Held, Layout, Population
from topofl.engine.ranks import one_process

N, D = 7, 3


def row(k):
    return torch.arange(D, dtype=torch.float64)[None] + 10 * k


WRITE = st.tuples(st.just("write"), st.sets(st.integers(0, N - 1), min_size=1))
EDITS = st.lists(WRITE | st.tuples(st.sampled_from(["fill", "apart"]), st.none()), max_size=8)


@given(EDITS)
def test_edits_give_the_rows_of_a_matrix(edits):
    held, wanted = Held.equal(row(0), N), row(0).repeat(N, 1)
    for k, (edit, nodes) in enumerate(edits, start=1):
        if edit == "write":
            which = np.array(sorted(nodes))
            values = torch.cat([row(k) + place for place in which])
            held.write(which, values)
            wanted[torch.from_numpy(which)] = values
        elif edit == "fill":
            held.fill(row(k))
            wanted = row(k).repeat(N, 1)
        else:
            held.apart().add_(1)
            wanted += 1
        assert len(held) == N
        for some in (slice(None), slice(2, 5), np.array([5, 0, 5])):
            torch.testing.assert_close(held.rows(some), wanted[some], rtol=0, atol=0)
    torch.testing.assert_close(held.apart(), wanted, rtol=0, atol=0)


def test_only_written_rows_are_stored_apart():
    held = Held.equal(row(0), 1000)
    assert len(held.stored) == 1
    held.write(np.array([3, 900]), torch.cat([row(1), row(2)]))
    assert len(held.stored) == 3
    held.write(np.array([3, 5]), torch.cat([row(3), row(4)]))
    assert len(held.stored) == 4  # the common one, 900, 3 and 5
    held.fill(row(9))
    assert len(held.stored) == 1
    assert held.most == 4


def test_rows_that_are_stored_for_one_node_are_written_in_place():
    held = Held.equal(row(0), 1000)
    held.write(np.array([3, 900]), torch.cat([row(1), row(2)]))
    stored = held.stored
    held.write(np.array([900]), row(3))
    assert held.stored is stored
    assert torch.equal(held.rows(np.array([3, 900, 4])), torch.cat([row(1), row(3), row(0)]))


def test_rows_that_all_differ_are_stored_apart():
    held = Held.equal(row(0), N)
    for node in range(N - 1):
        held.write(np.array([node]), row(node + 1))
    assert held.place is None
    assert torch.equal(held.stored, torch.cat([row(k) for k in [*range(1, N), 0]]))
    assert held.most == N


def test_rows_that_are_stored_apart_are_filled_in_place():
    """They may be the tensor of a phase, such as the personal models of Ditto."""
    held, equal, mean = Held(flat := torch.zeros(N, D)), Held.equal(row(0), N), torch.ones(1, D)
    for one in (held, equal):
        one.fill(mean)
    mean.zero_()  # a filled row is a copy
    assert flat.sum() == N * D
    assert equal.rows(slice(0, 1)).sum() == D


def test_rows_that_are_stored_apart_keep_their_memory():
    flat = torch.zeros(N, D)
    models = Population(Held(flat), Layout(("w",), (torch.Size([D]),)), one_process(N, flat.device))
    assert models.flat.data_ptr() == flat.data_ptr()
    models.write(np.array([2]), torch.ones(1, D))
    assert models.flat.data_ptr() == flat.data_ptr()
    assert models.views[0][2].tolist() == [1] * D
