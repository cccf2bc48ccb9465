"""Trackers: TensorBoard, Weights & Biases and MLflow, and logs of resumed runs."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import topofl
from tests.callbacks.helpers import SETTINGS, lines, play, read_events, series, stream
from tests.degenerate.inputs import run
from topofl import callbacks, topologies
from topofl.callbacks import Event


class WandbRun:
    """A stand-in for a run of W&B, with the signatures that are used."""

    def __init__(self, **options):
        self.options, self.logged, self.codes = options, [], []

    def log(self, data, step=None, commit=None):
        over = max((logged for logged, _ in self.logged), default=0)
        assert step >= over, "W&B drops steps that are over"
        assert not self.codes, "it has ended"
        self.logged.append((step, data))

    def finish(self, exit_code=None):
        self.codes.append(exit_code)


@pytest.fixture
def wandb(monkeypatch):
    """Put a stand-in for W&B in its place; return its runs."""
    runs = []

    def init(*, project=None, name=None, config=None, reinit=None, mode=None):
        runs.append(WandbRun(project=project, name=name, config=config, reinit=reinit, mode=mode))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, runs=runs))
    return runs


@pytest.mark.parametrize(("ending", "code"), [("end", 0), ("interrupt", 1), ("divergence", 1)])
def test_wandb_gets_settings_numbers_and_the_end(wandb, ending, code):
    tracker = callbacks.wandb("graphs", name="ring", mode="offline", config={"lab": "B"})
    assert wandb == [], "nothing is opened before the run starts"
    play(tracker, 3, ending=ending)
    (run,) = wandb
    config = SETTINGS | {"rounds": 3, "resumed_at": 0, "lab": "B"}
    wanted = {"project": "graphs", "name": "ring", "config": config}
    assert run.options == wanted | {"mode": "offline", "reinit": "create_new"}
    assert run.codes == [code]
    told = [(event.round, callbacks.scalars(event)) for event in stream(3, ending=ending)]
    assert run.logged == [(step, numbers) for step, numbers in told if numbers]


def test_a_tracker_serves_one_run_after_another(wandb):
    tracker = callbacks.wandb("graphs")
    play(tracker, 2)
    play(tracker, 3)
    assert [len(run.logged) for run in wandb] == [6, 7]
    assert [run.codes for run in wandb] == [[0], [0]]


class Client:
    """A stand-in for MLflow's client that keeps its limits."""

    def __init__(self):
        self.experiments, self.runs = {}, {}

    def get_experiment_by_name(self, name):
        found = self.experiments.get(name)
        return found and SimpleNamespace(experiment_id=found)

    def create_experiment(self, name):
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        name = f"run{len(self.runs)}"
        empty = {"params": {}, "points": [], "sent": []}
        self.runs[name] = SimpleNamespace(status="RUNNING", of=experiment_id, **empty)
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def update_run(self, run_id, status=None, name=None):
        self.runs[run_id].status = status

    def set_terminated(self, run_id, status=None, end_time=None):
        self.runs[run_id].status = status

    def get_run(self, run_id):
        run = self.runs[run_id]
        metrics = {point.key: point.value for point in run.points}
        return SimpleNamespace(data=SimpleNamespace(params=dict(run.params), metrics=metrics))

    def get_metric_history(self, run_id, key):
        return [point for point in self.runs[run_id].points if point.key == key]

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        run, given = self.runs[run_id], {one.key: one.value for one in params}
        assert run.status == "RUNNING"
        assert len(metrics) <= 1000
        assert len(params) <= 100
        for key, value in given.items():
            assert len(key) <= 250
            assert isinstance(value, str)
            assert len(value) <= 6000
        assert not given.keys() & run.params.keys(), "values of parameters cannot be changed"
        run.params |= given
        run.points.extend(metrics)
        run.sent.append(len(metrics))

    def steps(self, run_id, key):
        return [point.step for point in self.get_metric_history(run_id, key)]


@pytest.fixture
def mlflow(monkeypatch):
    """Put a stand-in for MLflow in its place; return its only client, which keeps all."""
    client = Client()

    def metric(key, value, timestamp, step):
        return SimpleNamespace(key=key, value=value, time=timestamp, step=step)

    def param(key, value):
        return SimpleNamespace(key=key, value=value)

    entities = SimpleNamespace(Metric=metric, Param=param)
    module = SimpleNamespace(MlflowClient=lambda tracking_uri=None: client, entities=entities)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return client


@pytest.mark.parametrize(
    ("ending", "status"), [("end", "FINISHED"), ("interrupt", "KILLED"), ("divergence", "FAILED")]
)
def test_mlflow_gets_settings_numbers_and_the_end(mlflow, ending, status):
    play(callbacks.mlflow("graphs"), 3, ending=ending)
    run = mlflow.runs["run0"]
    assert run.status == status
    wanted = {"algorithm": "dsgd", "settings.local.lr": "0.1", "n": "4"}
    assert run.params == wanted | {"rounds": "3", "resumed_at": "0"}
    told = [(event.round, callbacks.scalars(event)) for event in stream(3, ending=ending)]
    told = [(name, value, step) for step, own in told for name, value in own.items()]
    assert [(point.key, point.value, point.step) for point in run.points] == told


def test_mlflow_sends_in_batches_within_its_limits(mlflow):
    tracker = callbacks.mlflow("graphs")
    tracker(Event("start", 0, {f"setting {k}": "x" * 7000 for k in range(250)} | {"k" * 300: 1}))
    for t in range(1, 1001):
        tracker(Event("round", t, {"train_loss": 1.0, "bytes": 8, "seconds": 0.5}))
    run = mlflow.runs["run0"]
    assert len(run.params) == 251
    assert [size for size in run.sent if size] == [501] * 5, "one batch for 167 rounds"
    tracker(Event("evaluation", 1000, {"accuracy_mean": 0.5}))
    assert len(run.points) == 3001


def test_mlflow_continues_a_run_without_duplicates(mlflow):
    play(callbacks.mlflow("graphs"), 5, ending="interrupt")
    play(callbacks.mlflow("graphs", run_id="run0"), 8, 4)
    assert mlflow.runs["run0"].status == "FINISHED"
    assert mlflow.steps("run0", "round/train_loss") == list(range(1, 9))
    assert mlflow.steps("run0", "evaluation/accuracy_mean") == [0, 2, 4, 6, 8]
    play(callbacks.mlflow("graphs"), 2)
    assert [run.of for run in mlflow.runs.values()] == ["0", "0"], "it joins the experiment"


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("tensorboard", lambda tmp_path: callbacks.tensorboard(tmp_path / "board")),
        ("wandb", lambda tmp_path: callbacks.wandb("graphs")),
        ("mlflow", lambda tmp_path: callbacks.mlflow("graphs")),
    ],
)
def test_a_missing_package_is_an_error_before_training(package, make, monkeypatch, tmp_path):
    for name in list(sys.modules):
        if name.split(".")[0] == package or name == "torch.utils.tensorboard":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_has_checkpoints_and_settings(tmp_path):
    play(callbacks.tensorboard(tmp_path), 5)
    events = read_events(tmp_path)
    assert series(events, "checkpoint/bytes") == [(2, 1000), (4, 1000)]
    (note,) = events.Tensors("settings/text_summary")
    assert '"lr": 0.1' in note.tensor_proto.string_val[0].decode()


def test_tensorboard_is_flushed_with_every_evaluation_and_closed_at_the_end(tmp_path, monkeypatch):
    from torch.utils.tensorboard import SummaryWriter

    done = []
    for name in ("flush", "close"):
        original = getattr(SummaryWriter, name)

        def noted(self, name=name, original=original):
            done.append(name)
            return original(self)

        monkeypatch.setattr(SummaryWriter, name, noted)
    board = callbacks.tensorboard(tmp_path)
    for event in stream(3, ending="interrupt"):
        done.clear()
        board(event)
        assert ("flush" in done) == (event.kind != "round")
        assert ("close" in done) == (event.kind == "interrupt")
    done.clear()
    board(Event("end", 3, {"seconds": 1.0}))
    assert done == [], "what follows the end is nobody's"


def test_a_new_run_takes_the_place_of_an_older_one_in_tensorboard(tmp_path):
    play(callbacks.tensorboard(tmp_path), 5)
    play(callbacks.tensorboard(tmp_path), 3)
    assert [step for step, _ in series(read_events(tmp_path), "round/train_loss")] == [1, 2, 3]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the history and folder of an interrupted and resumed run with log and TensorBoard."""
    place = tmp_path_factory.mktemp("told")
    board, log = place / "board", place / "log.jsonl"

    def stop(event):
        if event.kind == "round" and event.round == 6:
            raise RuntimeError("pulled the plug")

    def train(*more, resume=False):
        logs = [callbacks.tensorboard(board), callbacks.jsonl(log), *more]
        saving = topofl.Saving(place / "checkpoints", every=4, resume=resume)
        options = {"topology": topologies.one_peer_exponential(6), "executor": "batched"}
        return run(rounds=9, saving=saving, callbacks=logs, **options)

    with pytest.raises(RuntimeError, match="pulled the plug"):
        train(stop)
    return train(resume=True), place


def in_history(history):
    """Return the finite numbers of a history that trackers log: {name: {round: value}}."""
    wanted = {
        f"round/{name}": enumerate(column.tolist(), start=1)
        for name, column in history.rounds.items()
    }
    rounds = history["round"].tolist()
    for name, column in history.evaluations.items():
        own = {"": column}
        if column.ndim > 1:
            own = {f"_{key}": getattr(column, key)(axis=1) for key in ("mean", "min", "max")}
        for ending, values in own.items():
            wanted[f"evaluation/{name}{ending}"] = zip(rounds, values.tolist(), strict=True)
    del wanted["evaluation/round"]
    return {name: {t: v for t, v in points if np.isfinite(v)} for name, points in wanted.items()}


def test_tensorboard_and_the_log_have_the_history_of_a_resumed_run(told):
    history, place = told
    events, records = read_events(place / "board"), lines(place / "log.jsonl")
    wanted = in_history(history)
    some = {"round/train_loss", "evaluation/accuracy_max", "evaluation/gradient_diversity"}
    assert some <= {*wanted}
    for name, points in wanted.items():
        assert series(events, name) == [(t, np.float32(value)) for t, value in points.items()], name
        kind, key = name.split("/")
        known = [(r["round"], r["values"].get(key)) for r in records if r["kind"] == kind]
        assert {t: value for t, value in known if value is not None} == points, name
    shown = {tag for tag in events.Tags()["scalars"] if not tag.endswith("/seconds")}
    assert shown == {*wanted, "checkpoint/bytes", "end/rounds"}
    assert [record["kind"] for record in records if record["round"] == 0] == ["start", "evaluation"]
    assert [record["round"] for record in records if record["kind"] == "start"] == [0, 4]
    assert records[0]["values"]["topology"] == "one_peer_exponential(n=6)"
