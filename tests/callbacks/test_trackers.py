"""Weights & Biases and MLflow get the values of events."""

import sys
from types import SimpleNamespace

import pytest

from tests.callbacks.helpers import SETTINGS, play, stream
from topofl import callbacks
from topofl.callbacks import Event


@pytest.fixture
def wandb(monkeypatch):
    """Put a stand-in for W&B in its place, with the signatures that are used; return its runs."""
    runs = []

    class Run:
        def __init__(self, options):
            self.options, self.logged, self.codes = options, [], []

        def log(self, data, step=None, commit=None):
            assert step >= max((logged for logged, _ in self.logged), default=0), (
                "W&B drops steps that are over"
            )
            assert not self.codes, "it has ended"
            self.logged.append((step, data))

        def finish(self, exit_code=None):
            self.codes.append(exit_code)

    def init(*, project=None, name=None, config=None, reinit=None, mode=None):
        runs.append(
            Run(
                {"project": project, "name": name, "config": config, "reinit": reinit, "mode": mode}
            )
        )
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
    wanted = {
        "project": "graphs",
        "name": "ring",
        "config": config,
        "mode": "offline",
        "reinit": "create_new",
    }
    assert run.options == wanted
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
        return (
            SimpleNamespace(experiment_id=self.experiments[name])
            if name in self.experiments
            else None
        )

    def create_experiment(self, name):
        self.experiments[name] = str(len(self.experiments))
        return self.experiments[name]

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        name = f"run{len(self.runs)}"
        self.runs[name] = SimpleNamespace(
            status="RUNNING", params={}, points=[], sent=[], of=experiment_id
        )
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
        run = self.runs[run_id]
        assert run.status == "RUNNING"
        assert len(metrics) <= 1000
        assert len(params) <= 100
        assert all(
            len(p.key) <= 250 and isinstance(p.value, str) and len(p.value) <= 6000 for p in params
        )
        assert not {p.key for p in params} & set(run.params), (
            "values of parameters cannot be changed"
        )
        run.params |= {p.key: p.value for p in params}
        run.points.extend(metrics)
        run.sent.append(len(metrics))

    def steps(self, run_id, key):
        return [point.step for point in self.get_metric_history(run_id, key)]


@pytest.fixture
def mlflow(monkeypatch):
    """Put a stand-in for MLflow in its place; return its only client, which keeps all."""
    client = Client()
    entities = SimpleNamespace(
        Metric=lambda key, value, timestamp, step: SimpleNamespace(
            key=key, value=value, time=timestamp, step=step
        ),
        Param=lambda key, value: SimpleNamespace(key=key, value=value),
    )
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
    assert run.params == {
        "algorithm": "dsgd",
        "settings.local.lr": "0.1",
        "n": "4",
        "rounds": "3",
        "resumed_at": "0",
    }
    told = [
        (name, value, e.round)
        for e in stream(3, ending=ending)
        for name, value in callbacks.scalars(e).items()
    ]
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
    assert [run.of for run in mlflow.runs.values()] == ["0", "0"], (
        "and a new run joins the experiment"
    )


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("tensorboard", lambda tmp_path: callbacks.tensorboard(tmp_path / "board")),
        ("wandb", lambda tmp_path: callbacks.wandb("graphs")),
        ("mlflow", lambda tmp_path: callbacks.mlflow("graphs")),
    ],
)
def test_a_missing_package_is_an_error_before_training(package, make, monkeypatch, tmp_path):
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] == package or name == "torch.utils.tensorboard"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []
