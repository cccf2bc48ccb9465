"""``topofl new``: a commented configuration to start from."""

import argparse
import shlex
from importlib.resources import files
from pathlib import Path

from topofl._support.text import printable

__all__ = ["new"]


def new(options: argparse.Namespace) -> None:
    """Write a commented configuration, which runs as it is."""
    path: Path = options.file
    if path.suffix != ".toml":
        raise ValueError(f"`FILE` must end in .toml, got {path.name}")
    text = files("topofl.cli").joinpath("experiment.toml").read_text(encoding="utf-8")
    command = f"topofl run {shlex.quote(printable(str(path)))}"
    folder = shlex.quote(printable(f"runs/{path.stem}"))
    text = text.replace("topofl run experiment.toml", command).replace("runs/experiment", folder)
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ValueError(
            f"`FILE` must be a new file, got {path}, which exists; name another, or overwrite it "
            "with --force"
        ) from error
    print(f"wrote {printable(str(path))}; train with: {command}")
