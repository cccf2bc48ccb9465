"""What checkpoints, memory and augmentation of a run refuse."""

import errno
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.memory.test_footprint import FACTS, LOOPED, batched, changed, least
from tests.refusals import named, refused, rows
from tests.rows.stored import run, sign_checkpoint, stopped, trained
from topofl import data
from topofl.engine.checkpoint import OtherRunError, ResumeError
from topofl.engine.footprint import in_gib
from topofl.engine.memory import MappedFiles


def of_format(path, number):
    trained(path, rounds=1)
    sign_checkpoint(path, format=number)
    trained(path, resume=True)


def written(path, name):
    (path / name).write_text("x")
    return path


def damaged(path):
    stopped(path, 6)
    for file in path.glob("*/rows-0.safetensors"):
        os.truncate(file, 8)
    trained(path, resume=True)


def unevaluated(path):
    """Continue after the checkpoint of round 4, after which models were not evaluated."""
    stopped(path, 4, checkpoints=4)
    return partial(trained, path, resume=True)


SEVEN = in_gib(FACTS.needed(batched(7)))

ALONE = " alone take 8.0 GiB with either executor: "


FLAT = data.from_arrays(np.eye(30, 36), np.arange(30) % 3, test=0.2)
CROPS = data.crop_and_flip(padding=2)


def augmented(padding):
    return data.augmented(problems.equal_clients(), data.crop_and_flip(padding))


def with_other_images(path, other):
    """Continue a run with other images."""
    trained(path, rounds=1, clients=augmented(2))
    trained(path, resume=True, clients=other)


RESUME_ERRORS = {
    "has one of round 1; continue with resume=True, or use another folder": (
        lambda path: [trained(path, rounds=1) for _ in range(2)]
    ),
    (
        "`saving` must have an intact checkpoint ",
        "all 2 in ",
        " are damaged (",
        "its checksum",
    ): damaged,
    ("state-00000006.json has an older format, ", "; finish that run with the version"): (
        lambda path: trained(written(path, "state-00000006.json"))
    ),
    "state-00000006.json has an older format, ": (
        lambda path: trained(written(path, "state-00000006.json"), resume=True)
    ),
    ("checkpoints of format 4, ", " has format 5; continue with topofl 1"): (
        lambda path: of_format(path, 5),
        lambda path: of_format(path / "a", 4),
    ),
    ("`rounds` must be at least 4, the number completed in ", ", got 3; start a shorter"): (
        lambda path: [trained(path, rounds=4), trained(path, rounds=3, resume=True)],
        lambda path: [trained(path / "a", rounds=4), trained(path / "a", rounds=4, resume=True)],
    ),
    ("`rounds` must be at least 5, got 4: ", " round 4, after which models were not eval"): (
        lambda path: unevaluated(path)(rounds=4),
        lambda path: unevaluated(path / "a")(rounds=5),
    ),
}

VALUE_ERRORS = {
    "`folder` must be the path of a folder, got an empty text": lambda: run(saving=""),
    r"`folder` must be the path of a folder, got 'a\x00b' with a null": lambda: run(saving="a\0b"),
    (
        f"the run must fit into memory, but needs {in_gib(FACTS.needed(batched(100)))} ",
        f"(batched, chunk=100) and {SEVEN} are free; chunk=7 would need {SEVEN}",
    ): (
        lambda: FACTS.check(least("batched", 100), FACTS.needed(batched(7))),
        lambda: FACTS.check(least("batched", 7), FACTS.needed(batched(7))),
    ),
    'executor="looped" would need ': (
        lambda: changed(evaluation=0).check(least("batched"), changed(evaluation=0).needed(LOOPED)),
        lambda: changed(evaluation=0).check(least(), changed(evaluation=0).needed(LOOPED)),
    ),
    "chunk=7 would": lambda: FACTS.check([batched(7, workers=2)], FACTS.needed(batched(7))),
    ("`scratch` must be a folder, got '", "no such folder'"): lambda: topofl.Compute(
        device="cpu", scratch="no such folder"
    ),
    "`scratch` must be None unless one process": (
        lambda path: topofl.Compute(device="cpu", scratch=path, distributed=True),
        lambda path: topofl.Compute(device="cpu", scratch=path),
    ),
    "`padding` must be between 0 and 1024, got -1": (
        lambda: data.crop_and_flip(-1),
        lambda: data.crop_and_flip(0),
    ),
    "`padding` must be between 0 and": (
        lambda: data.crop_and_flip(1025),
        lambda: data.crop_and_flip(1024),
    ),
    "`flip` must be True or False, got 1": lambda: data.crop_and_flip(4, 1),
    "`flip` must be True with padding=0": (
        lambda: data.crop_and_flip(0, False),
        lambda: data.crop_and_flip(1, False),
    ),
    "`augment` must have a padding below the shorter side of the images, 6, got crop": (
        lambda: augmented(6),
        lambda: augmented(5),
    ),
    ("`augment` must be None for data other than images, ", "(30, 36)"): lambda: data.augmented(
        data.iid(FLAT, 6, seed=0), CROPS
    ),
}

TYPE_ERRORS = {
    "`callbacks` must be a list of functions that take an Event": lambda: run(callbacks=["print"]),
    "must be a list of functions that take an Event": lambda: run(callbacks=print),
    "`padding` must be an integer": lambda: data.crop_and_flip(1.5),
    ("`augment` must be ", " data.crop_and_flip(), got True"): lambda: data.augmented(
        problems.equal_clients(), True
    ),
    "`clients` must be a data.Partition, got Dataset": lambda: data.augmented(FLAT, CROPS),
}

OTHER_RUN_ERRORS = {
    ("`resume` must ", ": augment was crop_and_flip(padding=2, flip=True), is None"): (
        lambda path: with_other_images(path, problems.equal_clients())
    ),
    ("`resume` must ", ": augment was crop_and_flip(padding=2, flip=True), is crop_and_"): (
        lambda path: with_other_images(path, augmented(1)),
        lambda path: with_other_images(path / "a", augmented(2)),
    ),
}

LARGE = {
    "parameters alone take 400 MiB with either executor: use fewer nodes": {},
    f"state{ALONE}use no momentum": {"state": 2**33},
    f"activations{ALONE}lower batch_size": {"looped": 2**33, "step_bytes": 2**33},
    f"evaluation{ALONE}": {"evaluation": 2**33},
    f"data{ALONE}keep images as uint8": {"data": 2**33, "held": 0},
}
"""What is said of parts of memory that are too large."""

SEVERAL = [
    (
        ValueError,
        f"1 MiB are free; {said}",
        lambda part=part, executor=executor: changed(**part).check(least(executor, 1), 2**20),
    )
    for said, part in LARGE.items()
    for executor in ("batched", "looped", "auto")
]

ROWS = {
    **{ResumeError: RESUME_ERRORS, OtherRunError: OTHER_RUN_ERRORS},
    **{ValueError: VALUE_ERRORS, TypeError: TYPE_ERRORS},
}


@pytest.mark.parametrize("row", rows(ROWS, *SEVERAL), ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)


def full(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_without_space_or_files_is_refused_before_work(tmp_path, monkeypatch):
    with pytest.raises(OSError, match=r"`compute.scratch` must be a folder in which files can be"):
        MappedFiles(Path("/proc"), 0).new((2, 10), torch.float32)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"`compute.scratch` must have space for the models, 80 byt"):
        MappedFiles(tmp_path, 0).new((2, 10), torch.float32)


def test_what_torch_cannot_compile_is_refused_by_name(monkeypatch):
    def broken(function):
        def fail(*inputs):
            raise RuntimeError("no C++ compiler\nmany more lines")

        return fail

    monkeypatch.setattr("torch.compile", broken)
    message = r"`compile` must be False .* cannot compile it: no C\+\+ compiler$"
    for settings in ({"executor": "auto"}, {"executor": "looped"}, {"chunk": 2}):
        with pytest.raises(ValueError, match=message):
            run(model=problems.convolutional(), compile=True, **settings)
