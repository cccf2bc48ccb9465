"""What torchrun tells the processes that it starts."""

from topofl._support.processes import (
    local_process_number,
    process_count,
    process_number,
    processes_on_machine,
    torchrun_holds_store,
)


def test_variables_of_torchrun_are_read(monkeypatch):
    given = {"RANK": 9, "WORLD_SIZE": 12, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert (process_number(), process_count()) == (9, 12)
    assert (local_process_number(), processes_on_machine()) == (1, 4)
    assert torchrun_holds_store()


def test_without_torchrun_there_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    assert process_number() is None
    assert (process_count(), local_process_number(), processes_on_machine()) == (1, 0, 1)
    assert not torchrun_holds_store()
