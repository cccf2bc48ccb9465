"""Parser of the command line. Modules of the commands are imported only when they run."""

import argparse
from pathlib import Path
from typing import Any, NoReturn

import topofl
from topofl._support.suffixes import KINDS
from topofl._support.words import did_you_mean
from topofl.cli.declared import KINDS_OF_NAMES

__all__ = ["make_parser"]

_ABOUT_FOLDERS = """

DIR holds config.toml (with all defaults), checkpoints/ and, at the end, history/.
Ctrl-C finishes the round and writes a checkpoint. A finished run keeps its last checkpoint,
which is as large as all models together and is needed only to train more rounds; remove
DIR/checkpoints otherwise."""


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors as ``ValueError`` instead of exiting."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise if `value` is not one of the choices, suggesting the nearest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            wanted = (
                f"must be one of {', '.join(known)}, got {value!r}{did_you_mean(str(value), known)}"
            )
            raise argparse.ArgumentError(action, wanted)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which sets ``command`` to ``module:function``."""
    parser = _Parser(
        prog="topofl",
        description="Decentralized federated learning over graphs: "
        "compare topologies, train, report.",
        epilog="exit codes: 0 success; 1 the run failed; 2 wrong usage or configuration",
    )
    parser.add_argument("--version", action="version", version=f"topofl {topofl.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _add_list,
        _add_spectral,
        _add_run,
        _add_resume,
        _add_compare,
        _add_graphs,
        _add_reproduce,
    ):
        add(verbs)
    return parser


def _path(text: str) -> Path:
    """Return a path; an empty argument, as from an unset shell variable, is rejected."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must be a path, got empty text; the current folder is '.'"
        )
    return Path(text)


def _add_verb(
    verbs: Any,
    name: str,
    command: str,
    text: str,
    examples: str,
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command to the parser and return its own parser."""
    indented = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    verb: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=f"{text}{more}",
        epilog=f"examples:\n{indented}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.set_defaults(command=command)
    return verb


def _add_list(verbs: Any) -> None:
    examples = """
        topofl list
        topofl list topology
        topofl list algorithm --needs
    """
    verb = _add_verb(
        verbs,
        "list",
        "topofl.cli.listing:list_names",
        "list the names for specs and configurations",
        examples,
    )
    verb.add_argument("kind", nargs="?", choices=KINDS_OF_NAMES, help="list only this kind")
    verb.add_argument(
        "--needs",
        action="store_true",
        help="also list what algorithms require of graphs and weights",
    )


def _add_spectral(verbs: Any) -> None:
    examples = """
        topofl spectral ring:100 exponential:100 "dcliques:100,inter=ring,seed=0"
        topofl spectral ring:100 dcliques:100,seed=0 --data digits --per-node 2
        topofl spectral random_regular:64,k=4,seed=1 --csv graphs.csv
        topofl spectral "link_failures,base=(torus:100),fail=0.1,recover=0.5,seed=0"
        topofl spectral graph.graphml graph.graphml,own_weights=true
        topofl spectral "mygraphs:wheel,n=100" --metrics mygraphs:mean_weight
        topofl spectral ring:100 exponential:100 --html report.html
    """
    text = "compare graphs before training"
    verb = _add_verb(verbs, "spectral", "topofl.cli.spectral:spectral", text, examples)
    files = ", ".join(KINDS)
    help_specs = (
        "a graph: name[:n][,key=value]*[,base=(SPEC)]; the name may be module:function, or a file "
        f"({files})"
    )
    verb.add_argument("specs", nargs="+", metavar="SPEC", help=help_specs)
    verb.add_argument(
        "--data", metavar="DATA", help="'digits' or a folder with MNIST: adds label heterogeneity"
    )
    verb.add_argument(
        "--per-node",
        type=int,
        default=2,
        metavar="K",
        help="shards of sorted data per node (default: 2)",
    )
    verb.add_argument(
        "--seed", type=int, default=0, help="seed of shards and measurements (default: 0)"
    )
    help_rounds = "rounds to measure (default: 100, and 500 for the curves of a page)"
    verb.add_argument("--rounds", type=int, metavar="R", help=help_rounds)
    help_metrics = (
        "more columns, separated by commas: module:function or names from topofl list metric"
    )
    verb.add_argument("--metrics", metavar="NAMES", help=help_metrics)
    _add_report_options(verb, "numbers, pictures, measurements", "all")
    _add_table_options(verb)


def _add_run(verbs: Any) -> None:
    examples = """
        topofl run experiment.toml
        topofl run experiment.toml --set run.rounds=50 --set topology=ring --out runs/ring
        topofl run experiment.toml --dry-run
        topofl run runs/ring/config.toml --out runs/again
        topofl run experiment.toml --out runs/ring --skip-done
    """
    verb = _add_verb(
        verbs,
        "run",
        "topofl.cli.run:run",
        "run an experiment described in a TOML file, and save it",
        examples,
        _ABOUT_FOLDERS,
    )
    help_out = "where to save (default: runs/ and the file's name)"
    verb.add_argument(
        "config",
        type=_path,
        metavar="CONFIG.toml",
        help="tables data, topology, algorithm, run, ...",
    )
    verb.add_argument("--out", type=_path, metavar="DIR", help=help_out)
    done = verb.add_mutually_exclusive_group()
    help_force = "replace a finished run in DIR, once this run has a checkpoint"
    done.add_argument("--force", action="store_true", help=help_force)
    done.add_argument(
        "--skip-done", action="store_true", help="do nothing if the run in DIR is finished"
    )
    every = "a checkpoint every K rounds, or by time (default: auto, at least one in ten minutes)"
    verb.add_argument("--checkpoint-every", metavar="K|auto", help=every)
    verb.add_argument(
        "--dry-run",
        action="store_true",
        help="show memory, messages and, by a probe, seconds; save nothing",
    )
    _add_training_options(verb, "table.key=value, or table=spec for a whole table; may be repeated")


def _add_resume(verbs: Any) -> None:
    examples = """
        topofl resume runs/ring
        topofl resume runs/ring --set run.rounds=1000
    """
    text = "continue a run that was stopped, or train more rounds"
    verb = _add_verb(verbs, "resume", "topofl.cli.run:resume", text, examples, _ABOUT_FOLDERS)
    verb.add_argument("folder", type=_path, metavar="DIR", help="folder of the run (run --out)")
    _add_training_options(
        verb, "table.key=value, for run.rounds (more of them), saving.every, compute.device"
    )


def _add_compare(verbs: Any) -> None:
    examples = """
        topofl compare runs/*
        topofl compare runs/ring runs/dcliques --target 0.85 --plot accuracy.png
    """
    verb = _add_verb(
        verbs, "compare", "topofl.cli.compare:compare", "compare saved runs in a table", examples
    )
    verb.add_argument(
        "runs",
        nargs="+",
        type=_path,
        metavar="RUN",
        help="a folder that run (or History.save) wrote",
    )
    verb.add_argument(
        "--target",
        type=float,
        default=0.8,
        metavar="SCORE",
        help="score to reach, for the column of rounds (default: 0.8)",
    )
    verb.add_argument(
        "--column",
        metavar="NAME",
        help="which score, e.g. accuracy_fine_tuned (default: the task's)",
    )
    verb.add_argument(
        "--plot", type=_path, metavar="FILE", help="draw scores against --x (.png, .pdf, .svg)"
    )
    axes = ("rounds", "steps", "megabytes", "seconds")
    verb.add_argument(
        "--x",
        choices=axes,
        default="rounds",
        help="horizontal axis of --plot (default: rounds); seconds are simulated",
    )
    _add_table_options(verb)


def _add_graphs(verbs: Any) -> None:
    examples = """
        topofl graphs runs/dpfl
        topofl graphs runs/dpfl --labels --html graphs.html
        topofl graphs runs/dpfl --every 10 --about structure --csv graphs.csv
    """
    text = "show which nodes received from which in a saved run, per round, such as learned graphs"
    verb = _add_verb(verbs, "graphs", "topofl.cli.graphs:graphs", text, examples)
    verb.add_argument(
        "folder", type=_path, metavar="RUN", help="a folder that run (or History.save) wrote"
    )
    verb.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="K",
        help="every K-th round and the last (default: all)",
    )
    help_labels = "also read the data of the run: adds columns on labels, and orders nodes by them"
    verb.add_argument("--labels", action="store_true", help=help_labels)
    _add_report_options(verb, "a picture with a slider, curves", "structure, averaging, data")
    _add_table_options(verb)


def _add_reproduce(verbs: Any) -> None:
    examples = """
        topofl reproduce --list
        topofl reproduce dcliques-fig09 --scale smoke
        topofl reproduce dcliques-fig09 --scale paper --data path/to/data --seeds 5
        topofl reproduce dcliques --scale quick --data path/to/data --jobs 2 --report
        topofl reproduce dcliques --scale quick --data path/to/data --dry-run
    """
    text = "regenerate figures of the papers and check the papers' claims about them"
    verb = _add_verb(verbs, "reproduce", "topofl.cli.reproduce:reproduce", text, examples)
    verb.add_argument(
        "name", nargs="?", metavar="FIGURE", help="a figure, or a paper for all of its figures"
    )
    verb.add_argument(
        "--list",
        action="store_true",
        help="list papers, figures, and figures that are missing, and exit",
    )
    scales = "smoke (seconds, no files), quick (hours on 2 cores; default) or paper"
    verb.add_argument("--scale", default="quick", metavar="SCALE", help=scales)
    verb.add_argument(
        "--seeds",
        type=int,
        metavar="K",
        help="runs of every arm (default: 1 to 5, by paper and scale)",
    )
    _add_execution_options(verb)


def _add_execution_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of ``reproduce`` on data, folders and hardware."""
    verb.add_argument(
        "--data",
        type=_path,
        metavar="DIR",
        help="folder that contains MNIST and CIFAR-10, or the parent of one",
    )
    verb.add_argument(
        "--datasets", metavar="NAMES", help="use only these: mnist, cifar10, or both with a comma"
    )
    help_out = "folder of results (default: out/reproduce); its finished runs are not repeated"
    verb.add_argument(
        "--out", type=_path, default=Path("out/reproduce"), metavar="DIR", help=help_out
    )
    help_kept = (
        "folder with the JSON files of an earlier report; its unchanged runs are not repeated"
    )
    verb.add_argument("--kept", type=_path, metavar="DIR", help=help_kept)
    verb.add_argument(
        "--device", metavar="D", help="cpu, cuda, cuda:1 (default: CUDA if there is one)"
    )
    verb.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="J",
        help="processes, sharing the CPU cores (default: 1)",
    )
    verb.add_argument(
        "--dry-run",
        action="store_true",
        help="show runs, time and memory (from probes); keep nothing",
    )
    verb.add_argument(
        "--report",
        action="store_true",
        help="also write one page with everything: HTML and Markdown",
    )


def _add_training_options(verb: argparse.ArgumentParser, help_set: str) -> None:
    """Add the options that ``run`` and ``resume`` share."""
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help_set)
    verb.add_argument(
        "--log",
        type=_path,
        metavar="FILE.jsonl",
        help="append one JSON object per event to this file",
    )
    verb.add_argument(
        "--tensorboard", type=_path, metavar="DIR", help="write scalars for TensorBoard here"
    )
    verb.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, help="a bar (default: on terminals)"
    )


def _add_report_options(verb: argparse.ArgumentParser, contents: str, default: str) -> None:
    """Add the options that ``spectral`` and ``graphs`` share."""
    verb.add_argument("--html", type=_path, metavar="FILE", help=f"also write a page: {contents}")
    groups = "structure, paths, averaging, rounds, push-sum, data, cost"
    verb.add_argument(
        "--about",
        metavar="GROUPS",
        help=f"which columns, separated by commas: {groups} (default: {default})",
    )


def _add_table_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of commands that print a table."""
    verb.add_argument(
        "--csv", type=_path, metavar="FILE", help="also write the table there, in full precision"
    )
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    form.add_argument(
        "--json", action="store_true", help="print a JSON list with one object per row"
    )
