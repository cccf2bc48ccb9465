"""Memory by hand-counted bytes, its refusals, and what is free by made-up files of the kernel."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from topofl.engine.memory import (
    RETAINED,
    Facts,
    Living,
    check_memory,
    free_memory,
    in_gib,
    largest_chunk,
    memory,
    peak,
    peak_of_forward,
    peak_of_step,
)

MIB = 2**20
FACTS = Facts(
    n=100, d=MIB, itemsize=4, minibatch=MIB, looped=10 * MIB, batched=12 * MIB, state=0, mixes_gradients=False,
    matrices=3, mixing=5 * MIB, evaluation=50 * MIB, data=70 * MIB, held=70 * MIB, torch=30 * MIB,
)  # fmt: skip


def test_parts_by_hand():
    assert memory(FACTS, "batched", 8) == {
        "parameters": 400 * MIB, "state": 0, "gradients": 32 * MIB, "minibatches": 8 * MIB, "activations": 64 * MIB,
        "mixing": 5 * MIB, "evaluation": 50 * MIB, "matrices": 3, "data": 70 * MIB, "torch": 30 * MIB,
    }  # fmt: skip
    looped = memory(replace(FACTS, workers=2), "looped", 8)
    assert (looped["gradients"], looped["minibatches"], looped["activations"]) == (8 * MIB, 2 * MIB, 12 * MIB)
    assert memory(FACTS, "batched", None) == memory(FACTS, "batched", 100) == memory(FACTS, "batched", 1000)


def test_mixed_gradients_are_all_kept():
    mixing = replace(FACTS, mixes_gradients=True)
    assert memory(mixing, "batched", 8)["gradients"] == (100 + 8) * 4 * MIB
    assert memory(mixing, "looped", None)["gradients"] == (100 + 1) * 4 * MIB
    assert memory(mixing, "batched", None)["gradients"] == 100 * 4 * MIB


def test_training_and_evaluation_take_turns():
    parts = memory(FACTS, "batched", 8)  # training takes 32 + 64 MiB, evaluation 50
    lasting = (400 + 8 + 70 + 30) * MIB + 3
    assert peak(parts) == lasting + 96 * MIB + 50 * MIB
    assert peak(parts | {"evaluation": 80 * MIB}) == lasting + 96 * MIB + RETAINED
    assert peak(parts | {"evaluation": 2**40}) == lasting + 2**40 + RETAINED
    assert peak(parts | {"mixing": 2**40}) == lasting + 32 * MIB + 2**40 + 50 * MIB


@given(
    st.integers(1, 200), st.integers(1, 10**6), st.integers(0, 10**8), st.integers(0, 10**9), st.booleans(),
    st.integers(1, 200), st.integers(0, 10**12),
)  # fmt: skip
def test_more_nodes_together_never_need_less(n, d, batched, evaluation, mixes, chunk, free):
    facts = replace(FACTS, n=n, d=d, batched=batched, evaluation=evaluation, mixes_gradients=mixes)
    chunk = min(chunk, n)
    if chunk < n - 1 or not mixes:  # all gradients at once need no second place
        assert peak(memory(facts, "batched", chunk)) <= peak(memory(facts, "batched", chunk + 1))
    found = largest_chunk(facts, free)
    assert 0 <= found <= n
    assert found == 0 or peak(memory(facts, "batched", found)) - facts.held <= free
    assert mixes or found == n or peak(memory(facts, "batched", found + 1)) - facts.held > free


def needs(kind, chunk=None):
    return peak(memory(FACTS, kind, chunk)) - FACTS.held


@pytest.mark.parametrize("executor", ["batched", "looped", "auto"])
@pytest.mark.parametrize("chunk", [None, 8, "auto"])
def test_what_fits_is_not_refused(executor, chunk):
    check_memory(FACTS, executor, chunk, needs("batched"))
    check_memory(FACTS, executor, chunk, None)


def test_refusals_name_what_fits():
    with pytest.raises(ValueError, match="`chunk` must be one") as caught:
        check_memory(FACTS, "batched", None, needs("batched", 7))
    assert str(caught.value) == (
        f"`chunk` must be one with which the run fits into memory: it needs {in_gib(needs('batched'))}, "
        f"{in_gib(needs('batched', 7))} are free; chunk=7 would need {in_gib(needs('batched', 7))}"
    )
    check_memory(FACTS, "batched", 7, needs("batched", 7))
    check_memory(FACTS, "batched", "auto", needs("batched", 7))
    check_memory(FACTS, "auto", 50, needs("looped"))
    with pytest.raises(ValueError, match=r'executor="looped" would need 492 MiB'):
        check_memory(FACTS, "batched", "auto", needs("looped"))


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, "parameters alone take 400 MiB with either executor: take fewer nodes"),
        ({"state": 2**33}, "state alone take 8.0 GiB with either executor: leave out momentum"),
        ({"looped": 2**33, "batched": 2**33}, "activations alone take 8.0 GiB .* lower batch_size"),
        ({"data": 2**33, "held": 0}, "data alone take 8.0 GiB .* as uint8"),
    ],
)
@pytest.mark.parametrize("executor", ["batched", "looped", "auto"])
def test_refusals_name_what_is_too_large(changes, remedy, executor):
    with pytest.raises(ValueError, match=f"1 MiB are free; {remedy}"):
        check_memory(replace(FACTS, **changes), executor, 1, MIB)


def test_sizes_are_readable():
    assert [in_gib(size) for size in (1, MIB, 2**30, 3.25 * 2**30)] == ["1 MiB", "1 MiB", "1.0 GiB", "3.2 GiB"]


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    800 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 800 * 1024),
        ({"memory.max": "max\n", "memory.current": "5\n"}, 800 * 1024),
        ({"memory.max": "9000\n", "memory.current": "5000\n"}, 4000),
        ({"memory.max": "9000\n", "memory.current": "5000\n", "memory.stat": "anon 7\ninactive_file 600\n"}, 4600),
        ({"memory.max": "9000\n", "memory.current": "9500\n"}, 0),
        ({"memory.max": f"{2**50}\n", "memory.current": "5000\n"}, 800 * 1024),
    ],
)
@pytest.mark.parametrize("folder", ["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"])
def test_control_groups_limit_what_is_free(tmp_path, files, free, folder):
    write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n"})
    write(tmp_path, {f"{folder}/{name}": text for name, text in files.items()})
    assert free_memory("cpu", tmp_path) == free


def test_older_control_groups_limit_too(tmp_path):
    write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n0::/\n"})
    folder = tmp_path / "sys/fs/cgroup/memory/a"
    write(folder, {"memory.limit_in_bytes": "9000\n", "memory.usage_in_bytes": "1000\n"})
    assert free_memory("cpu", tmp_path) == 8000


def test_elsewhere_it_is_what_the_system_says_or_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 7, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert free_memory("cpu", tmp_path) == 7 * 4096
    monkeypatch.delattr("os.sysconf")
    assert free_memory("cpu", tmp_path) is None
    assert free_memory("meta") is None


def test_tensors_count_while_they_live():
    with Living() as living:
        first = torch.zeros(10)
        second = first + 1
        view = second[2:]
        del second
        assert living.now == 80  # the view keeps its storage
        del view
        assert living.now == 40
        first.add_(1)
    assert (living.now, living.peak) == (40, 80)


def test_forward_by_hand():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert peak_of_forward(model, (5, 4), torch.float32) == 5 * (8 + 8) * 4  # a layer's input and output
    assert peak_of_forward(model, (5, 4), torch.float64) == 5 * (8 + 8) * 8


class Choosy(nn.Module):
    """Looks at values, which tensors without memory do not have."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x) if float(x.detach().sum()) >= 0 else x


def test_models_that_look_at_values_are_played_on_cpu():
    plain = peak_of_step(nn.Sequential(nn.Linear(4, 3)), (50, 4), torch.float32, 1)
    assert plain <= peak_of_step(Choosy(), (50, 4), torch.float32, 1) <= plain + 100
    with pytest.raises(RuntimeError):
        peak_of_step(Choosy(), (50, 4), torch.float32, 2)


@pytest.mark.parametrize("nodes", [1, 3])
def test_steps_hold_gradients_and_what_backward_needs(nodes):
    model = nn.Sequential(nn.Linear(4, 1000), nn.Tanh(), nn.Linear(1000, 3))
    d = sum(p.numel() for p in model.parameters())
    kept = 2 * 5 * 1000  # tanh and the gradient before it
    found = peak_of_step(model, (5, 4), torch.float32, nodes)
    assert 4 * nodes * kept < found < 4 * nodes * (d + 2 * kept)
