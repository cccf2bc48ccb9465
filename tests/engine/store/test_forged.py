"""Forged checkpoints are refused in one sentence."""

import hashlib
import json
import os
import zipfile

import numpy as np
import pytest
import torch

from tests.engine import killed
from tests.engine.store.helpers import train
from topofl.engine import checkpoint

DEEP = "[" * 50_000 + "]" * 50_000


MARKERS = {
    "nested": lambda marker: json.dumps(marker).replace("{", f'{{"x": {DEEP}, ', 1),
    "nested within": lambda marker: signed(
        marker | {"run": marker["run"] | {"seed": json.loads("[" * 90 + "]" * 90)}}
    ),
    "no object": lambda marker: "[]",
    "a list of formats": lambda marker: signed(marker | {"format": [2]}),
    "no versions": lambda marker: signed(marker | {"versions": None}),
    "asked for one thing": lambda marker: signed(marker | {"asked": ["auto"]}),
    "another round": lambda marker: signed(marker | {"round": 5}),
    "true rounds": lambda marker: signed(marker | {"rounds": True}),
    "long numbers": lambda marker: json.dumps(marker).replace("{", f'{{"x": {"9" * 10_000}, ', 1),
}


def signed(marker):
    return json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)})


@pytest.mark.parametrize("forged", MARKERS)
def test_forged_markers_are_damaged_ones(whole, folder, forged):
    path = folder / "state-00000006.json"
    marker = json.loads(path.read_text())
    del marker["checksum"]
    path.write_text(MARKERS[forged](marker))
    with pytest.warns(
        RuntimeWarning,
        match=r"state-00000006.json is damaged: .*; the previous checkpoint is used",
    ):
        assert killed.differences(train(folder, resume=True), whole) == []


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def doubled(depth):
    """Return lists that are few, but endless to whoever follows all of them."""
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


def changed(**parts):
    return lambda state: state | parts


def in_recorder(table, **changes):
    return lambda state: (
        state | {"recorder": state["recorder"] | {table: state["recorder"][table] | changes}}
    )


def recorder(**changes):
    return lambda state: state | {"recorder": state["recorder"] | changes}


STATES = {
    "code": changed(models=Evil()),
    "nested": changed(models=nested(100)),
    "doubled": changed(phases=doubled(60)),
    "a list": lambda state: [state],
    "nothing": lambda state: {},
    "other models": changed(models=torch.zeros(3, 3)),
    "models of other numbers": lambda state: state | {"models": state["models"].double()},
    "models that claim": lambda state: state | {"models": torch.zeros(1).expand(10**7, 10**4)},
    "sparse models": lambda state: state | {"models": state["models"].to_sparse()},
    "no phases": changed(phases={}),
    "other phases": changed(phases={"other": {"x": torch.zeros(3)}}),
    "a guard of text": changed(guard="x"),
    "a guard of nobody": changed(guard={}),
    "rounds that claim": in_recorder("rounds", train_loss=torch.zeros(1).expand(10**12)),
    "fewer rounds": in_recorder("rounds", train_loss=torch.zeros(2)),
    "more evaluations": in_recorder("evaluations", accuracy=torch.zeros(50, 6)),
    "no matrix there": in_recorder("used", matrix=torch.full((6,), 9)),
    "indices beyond": lambda s: in_recorder(
        "matrices", indices=s["recorder"]["matrices"]["indices"] + 10**6
    )(s),
    "indices before": lambda s: in_recorder(
        "matrices", indices=s["recorder"]["matrices"]["indices"] - 10**6
    )(s),
    "names of nothing": recorder(names=[]),
    "names that are none": lambda s: recorder(names=[nested(50)] * len(s["recorder"]["names"]))(s),
    "entries without end": lambda s: recorder(entries=[10**15] * len(s["recorder"]["names"]))(s),
    "entries below 0": lambda s: recorder(entries=[-1] * len(s["recorder"]["names"]))(s),
    "rows without end": lambda s: recorder(rows=[10**15] * len(s["recorder"]["names"]))(s),
}


def resign(folder):
    for path in folder.glob("*.pt"):
        marker = json.loads(path.with_suffix(".json").read_text())
        del marker["checksum"]
        marker["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_suffix(".json").write_text(signed(marker))


@pytest.mark.parametrize("forged", STATES)
def test_forged_states_are_refused_in_one_sentence(folder, tmp_path, monkeypatch, forged):
    monkeypatch.chdir(tmp_path)
    path = folder / "state-00000006.pt"
    torch.save(STATES[forged](torch.load(path, weights_only=True)), path)
    resign(folder)
    with pytest.raises(
        ValueError, match=r"state-00000006\.pt (is not the state of a run|does not match this run)"
    ) as refused:
        train(folder, resume=True)
    assert len(str(refused.value)) < 800
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "unpickled").exists()


def test_checkpoints_without_the_column_steps_are_resumed(folder, whole):
    """They are older than the column, so rounds whose steps are unknown have NaN."""
    path = folder / "state-00000006.pt"
    state = torch.load(path, weights_only=True)
    del state["recorder"]["rounds"]["steps"]
    torch.save(state, path)
    resign(folder)
    history = train(folder, resume=True)[0]
    assert np.isnan(history["steps"][:6]).all()
    assert history["steps"][6] == whole[0]["steps"][6]
    np.testing.assert_array_equal(history["train_loss"], whole[0]["train_loss"])


def rewritten(path, compression, pickled):
    """Write an archive of torch anew, with another pickle in it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, pickled(content) if name.endswith("data.pkl") else content)


def test_compressed_states_are_not_read(folder):
    rewritten(
        folder / "state-00000006.pt", zipfile.ZIP_DEFLATED, lambda content: content + bytes(10**7)
    )
    resign(folder)
    with pytest.raises(
        ValueError, match=r"is not the state of a run: its member .*data\.pkl is compressed"
    ):
        train(folder, resume=True)


def test_deeply_nested_states_do_not_crash(folder):
    deep = 200_000
    pickled = b"\x80\x02" + b"]" * deep + b"a" * (deep - 1) + b"."
    rewritten(folder / "state-00000006.pt", zipfile.ZIP_STORED, lambda content: pickled)
    resign(folder)
    with pytest.raises(ValueError, match="is not the state of a run"):
        train(folder, resume=True)
