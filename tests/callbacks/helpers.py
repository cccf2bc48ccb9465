"""Events of a short run, and readers of logs."""

import json

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from topofl.callbacks import Event

SETTINGS = {"algorithm": "dsgd", "settings": {"local": {"lr": 0.1}}, "n": 4}
"""What a run tells of itself, in short."""


def stream(rounds, resumed=0, ending="end"):
    """Yield the events of a run that is evaluated every second round, from `resumed` on."""
    yield Event("start", resumed, SETTINGS | {"rounds": rounds, "resumed_at": resumed})
    if not resumed:
        values = {"round": 0, "accuracy_mean": 0.125, "gradient_diversity": float("nan")}
        yield Event("evaluation", 0, values)
    for t in range(resumed + 1, rounds + 1):
        yield Event("round", t, {"train_loss": 1 / t, "bytes": 96, "seconds": 0.5})
        if t % 2 == 0:
            values = {"round": t, "accuracy_mean": t / 8, "gradient_diversity": 0.25}
            yield Event("evaluation", t, values)
            yield Event("checkpoint", t, {"path": "runs/a", "bytes": 1000, "seconds": 0.25})
    values = {"end": {"seconds": 2.0, "rounds": rounds}, "interrupt": {"message": "Ctrl-C"}}
    yield Event(ending, rounds, values.get(ending, {"node": 3, "lr": 0.1, "policy": "raise"}))


def play(callback, *args, **kwargs):
    for event in stream(*args, **kwargs):
        callback(event)


def lines(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def read_events(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def series(events, name):
    return [(point.step, point.value) for point in events.Scalars(name)]
