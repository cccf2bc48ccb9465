"""Declarations of the commands that train runs, and list and compare them.

They have the form of those in :mod:`topofl.cli.commands`.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal


def _names(text: str) -> list[str]:
    """Return names that are separated by commas, those with commas in double quotes."""
    return [name.strip() for row in csv.reader([text], skipinitialspace=True) for name in row]


def run(
    config: Path,
    out: Path | None = None,
    force: bool = False,
    skip_done: bool = False,
    store: Path | None = None,
    checkpoint_every: str | None = None,
    dry_run: bool = False,
) -> None:
    """Run an experiment described in a TOML file, and save it.

    DIR holds config.toml (with all defaults), checkpoints/ and, at the end, history/ and run.json.
    Ctrl-C finishes the round and writes a checkpoint. A finished run keeps its last checkpoint,
    which is as large as all models together and is needed only to train more rounds; remove
    DIR/checkpoints otherwise.

    Parameters
    ----------
    config : CONFIG.toml
        tables data, topology, algorithm, run, ...
    out : DIR
        where to save (default: runs/ and the file's name)
    force
        replace a finished run in DIR, once this run has a checkpoint
    skip_done
        do nothing if DIR holds this run, finished; refuse other settings, data or versions
    store : STORE
        find the run in a store as of topofl sweep, or train it into the store
    checkpoint_every : K|auto
        a checkpoint every K rounds, or by time (default: auto, at least one in ten minutes)
    dry_run
        show memory, messages and, by a probe, seconds; save nothing

    Examples
    --------
    topofl run experiment.toml
    topofl run experiment.toml --set run.rounds=50 --set topology=ring --out runs/ring
    topofl run experiment.toml --dry-run
    topofl run runs/ring/config.toml --out runs/again
    topofl run experiment.toml --out runs/ring --skip-done
    topofl run experiment.toml --store runs/sweeps
    """


def resume(folder: Path) -> None:
    """Continue a run that was stopped, or train more rounds.

    DIR holds config.toml (with all defaults), checkpoints/ and, at the end, history/ and run.json.
    Ctrl-C finishes the round and writes a checkpoint. A finished run keeps its last checkpoint,
    which is as large as all models together and is needed only to train more rounds; remove
    DIR/checkpoints otherwise.

    Parameters
    ----------
    folder : DIR
        folder of the run (run --out)
    set : KEY=VALUE
        table.key=value, for run.rounds (more of them), saving.every, compute.device

    Examples
    --------
    topofl resume runs/ring
    topofl resume runs/ring --set run.rounds=1000
    """


def sweep(
    config: Path,
    grid: Sequence[str] = (),
    points: Path | None = None,
    random: int | None = None,
    search: int | None = None,
    column: str = "accuracy",
    draw_seed: int = 0,
    set: Annotated[Sequence[str], {"action": "append", "nargs": None}] = (),
    seeds: int | None = None,
    vary: str = "run,data,topology",
    store: Path = Path("runs/sweeps"),
    jobs: int | None = None,
    shard: str | None = None,
    slurm: Sequence[str] | None = None,
    dask: str | None = None,
    ray: str | None = None,
    retry_failed: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> None:
    """Run a grid of settings and seeds, without repeating finished runs.

    Parameters
    ----------
    config : BASE.toml
        settings of all runs
    grid : KEY=A,B
        values of settings, in all combinations; with --random and --search also uniform(a,b),
        log_uniform(a,b), integers(a,b)
    points : FILE.json
        a list of points instead, as [{"data.alpha": 0.1}, ...]
    random : K
        draw K points from the values of --grid
    search : K
        search for the best point in K trials
    column : NAME
        final score of --search (default: accuracy); losses and errors are minimized
    draw_seed : S
        seed of --random and --search (default: 0)
    set : KEY=VALUE
        change BASE.toml first, as in topofl run
    seeds : K
        K seeds per point, of run, partition and graph alike (default: those of BASE.toml)
    vary : NAMES
        what gets the seeds (default: run,data,topology)
    store : DIR
        folder of the store (default: runs/sweeps); its finished runs are not repeated
    jobs : J
        processes (default: 1); on clusters, runs at a time (default: all)
    shard : I/N
        only part I of N, for machines that share nothing
    slurm : KEY=VALUE
        submit Slurm arrays by submitit, with these parameters
    dask : ADDRESS
        submit to this scheduler of Dask
    ray : ADDRESS
        submit to this cluster of Ray; auto finds it
    retry_failed
        repeat runs that failed before
    dry_run
        show runs, time and memory, from probes
    progress
        a live table (default: on terminals)

    Examples
    --------
    topofl sweep base.toml --grid topology=ring,torus data.alpha=0.1,1 --seeds 10 --jobs 4
    topofl sweep base.toml --grid "topology=ring,(dcliques,inter=ring)" --seeds 3 --dry-run
    topofl sweep base.toml --grid "algorithm.lr=log_uniform(0.01,1)" --random 20
    topofl sweep base.toml --grid "algorithm.lr=log_uniform(0.01,1)" --search 20
    topofl sweep base.toml --points points.json --store runs/mine --shard 1/2
    topofl sweep base.toml --grid topology=ring,torus --seeds 10 --slurm timeout_min=60
    """


def runs(
    store: Path,
    where: Sequence[str] = (),
    columns: str | None = None,
    failed: bool = False,
    traceback: bool = False,
    bibtex: bool = False,
    remove: bool = False,
) -> None:
    """List, filter and remove stored runs, and list those that are not finished.

    Parameters
    ----------
    store : STORE
        a store, or a folder with folders of topofl run
    where : KEY=VALUE
        only runs with these settings; key=... selects by (the start of) the key
    columns : NAMES
        settings to show (default: those that differ)
    failed
        failed runs, with their errors
    traceback
        with --failed: whole tracebacks
    bibtex
        print the BibTeX entries of what the runs used, also of folders of History.save
    remove
        remove these runs; needs --where or --failed

    Examples
    --------
    topofl runs runs/sweeps
    topofl runs runs/sweeps --where topology.name=ring data.alpha=0.1
    topofl runs runs/sweeps --failed
    topofl runs runs/sweeps --bibtex
    topofl runs runs/sweeps --where run.rounds=10 --remove
    """


def compare(
    runs: Sequence[Path],
    target: float | None = None,
    column: str | None = None,
    hardware: str | None = None,
    columns: Annotated[
        Sequence[str] | None, {"type": _names, "nargs": None, "action": "store"}
    ] = None,
    group_by: str | None = None,
    baseline: str | None = None,
    over: str | None = None,
    equal: Literal["rounds", "messages", "megabytes", "seconds"] | None = None,
    plot: Path | None = None,
    x: Literal["rounds", "steps", "megabytes", "seconds"] | None = None,
    kind: Literal["band", "violin", "nodes", "pareto", "heat_map"] | None = None,
    band: Literal["interval", "range"] | None = None,
    latex: bool = False,
) -> None:
    """Compare saved runs in a table, or the groups of runs that differ in seeds only.

    Parameters
    ----------
    runs : RUN
        a folder that run (or History.save) wrote; with --group-by also a store of runs
    target : SCORE
        score to reach, for the columns of rounds and costs (default: 0.8; none for groups)
    column : NAME
        which score, e.g. accuracy_fine_tuned (default: the task's)
    hardware : SPEC
        seconds per round on this hardware, for --x seconds and for costs, such as
        'Hardware(compute=0.1, latency=0.02, bandwidth=1.25e6)'
    columns : NAMES
        columns of the table in this order, separated by commas, for all formats, by their names in
        the printed table; names with commas in double quotes (default: all)
    group_by : NAMES
        settings that make a group, separated by commas: topology, alpha, algorithm.lr; prints means
        over seeds with 95 % intervals
    baseline : VALUE
        with --group-by: paired differences to this group; a value, or setting=value
    over : NAMES
        with --group-by: settings other than seeds to average over on purpose
    equal
        with --group-by: scores and verdicts at an equal cost of all runs, the total of the cheapest
        (default: at the end of each run)
    plot : FILE
        draw scores against --x, or --kind for groups (.png, .pdf, .svg)
    x
        horizontal axis of --plot (default: rounds; megabytes for --kind pareto); seconds are
        simulated, see --hardware
    kind
        with --group-by and --plot: what to draw (default: band)
    band
        with --group-by and --plot: 95 % intervals of means, or lowest to highest run (default:
        intervals from five runs per group)
    latex
        print a LaTeX tabular for the package booktabs

    Examples
    --------
    topofl compare runs/*
    topofl compare runs/ring runs/dcliques --target 0.85 --plot accuracy.png
    topofl compare runs/* --group-by topology --baseline ring --target 0.8
    topofl compare runs/* --group-by topology --baseline ring --equal megabytes
    topofl compare runs/* --group-by topology,alpha --latex --plot curves.pdf --kind band
    topofl compare runs/* --group-by topology --latex --columns topology,accuracy,std
    """


def leaderboard(
    action: Literal["run", "build"],
    entries: Annotated[Sequence[Path], {"nargs": "*"}] = (),
    tasks: Sequence[str] | None = None,
    entry: str | None = None,
    out: Path = Path("leaderboard"),
    store: Path = Path("runs/leaderboard"),
    data: Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
) -> None:
    """Train entries on frozen tasks, or build the page of all results.

    Parameters
    ----------
    action : ACTION
        run: train entries and write DIR/TASK/ENTRY.json; build: write DIR/leaderboard.md
    entries : ENTRY.toml
        files with a name and the tables topology, mixing and algorithm, or several [[entry]]
    tasks : TASK
        which tasks (default: all that need no files)
    entry : NAME
        build: print the rank of the entry of this name, by task and budget
    out : DIR
        folder of the results (default: leaderboard)
    store : DIR
        folder of the runs, of which finished ones are not repeated (default: runs/leaderboard)
    data : DIR
        folder of datasets for tasks that need files (default: $TOPOFL_DATA)
    jobs : J
        processes (default: 1)
    progress
        a live table (default: on terminals)

    Examples
    --------
    topofl leaderboard run mine.toml
    topofl leaderboard run mine.toml --tasks digits-shards --jobs 2
    topofl leaderboard build --entry "My graph"
    """


def reproduce(
    name: Annotated[str | None, {"nargs": "?"}] = None,
    list: bool = False,
    scale: str = "quick",
    seeds: int | None = None,
    data: Path | None = None,
    datasets: str | None = None,
    out: Path = Path("out/reproduce"),
    kept: Path | None = None,
    device: str | None = None,
    jobs: int = 1,
    dry_run: bool = False,
    report: bool = False,
    until_decided: bool = False,
    max_seeds: int | None = None,
    hours: float | None = None,
) -> None:
    """Regenerate figures of the papers and check the papers' claims about them.

    Parameters
    ----------
    name : FIGURE
        a figure, or a paper for all of its figures
    list
        list papers, figures, and figures that are missing, and exit
    scale : SCALE
        smoke (seconds, no files), quick (default; minutes a figure and hours a paper on 2 cores),
        paper, or a second look on other data: mnist14, mnist1d; see --dry-run
    seeds : K
        runs of every arm (default: 1 to 5, by paper and scale; 20 of a second look)
    data : DIR
        folder that contains MNIST and CIFAR-10, or the parent of one (default: $TOPOFL_DATA)
    datasets : NAMES
        use only these: mnist, cifar10, or both with a comma
    out : DIR
        folder of results (default: out/reproduce); its finished runs are not repeated
    kept : DIR
        folder with the JSON files of an earlier report; its unchanged runs are not repeated
    device : D
        cpu, cuda, cuda:1 (default: CUDA if there is one)
    jobs : J
        processes, sharing the CPU cores (default: 1)
    dry_run
        show runs, time and memory (from probes); keep nothing
    report
        also write one page with everything: HTML and Markdown
    until_decided
        start with 3 seeds, and add seeds to the arms of claims that can still be decided
    max_seeds : K
        largest number of seeds of --until-decided (default: 40)
    hours : H
        time of the runs that --until-decided adds, in all commands with this --out

    Examples
    --------
    topofl reproduce --list
    topofl reproduce dcliques-fig09 --scale smoke
    topofl reproduce dcliques-fig09 --scale paper --data path/to/data --seeds 5
    topofl reproduce dcliques --scale quick --data path/to/data --jobs 2 --report
    topofl reproduce dcliques --scale quick --data path/to/data --dry-run
    topofl reproduce dfedpgp --data path/to/data --jobs 2 --until-decided --hours 6 --report
    """


def study(
    scenarios: Annotated[Sequence[str], {"nargs": "*"}] = (),
    data: Path | None = None,
    out: Path | None = None,
    html: Path | None = None,
    graphs: Path | None = None,
    processes: int = 1,
    minutes: float = float("inf"),
    dry_run: bool = False,
) -> None:
    """Correlate numbers of graphs, known before training, with how well nodes learn.

    CONFIG.toml is a file of topofl run without [topology] and with a table [study]. Correlations
    need at least 8 graphs, and several evaluations in the first half of the rounds:

      [data]
      name = "digits"
      n = 20
      seed = 0

      [algorithm]
      name = "dsgd"
      lr = 0.1
      batch_size = 8

      [run]
      rounds = 60
      seed = 0

      [evaluation]    # default: 20 evaluations
      every = 3

      [study]
      graphs = ["ring", "torus", "designed,degree=4"]    # default: the 47 graphs of our study
      partitions = ["shards,per_node=1", "dirichlet_per_client,alpha=0.1"]  # default: of [data]
      algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=8"]               # default: [algorithm]
      seeds = [0, 1, 2]
      rates = [0.05, 0.1, 0.2]    # the best on a random 4-regular graph is used for all graphs;
                                  # default: lr of the entry of algorithms, or of [algorithm]

    Finished runs are kept and not repeated: the same command continues an interrupted study. They
    are stored in the folder runs of --out, which topofl runs lists, with the tracebacks of those
    that failed.

    Parameters
    ----------
    scenarios : CONFIG.toml
        CONFIG.toml, or scenarios of our study, or 'all' of those whose data are given
    data : DIR
        folder of data of our study
    out : DIR
        folder of results (default: out/study, or out/study/NAME for NAME.toml)
    html : FILE
        also write an interactive page
    graphs : DIR
        also fit rivals, on graphs that are kept in this folder
    processes : J
        processes (default: 1)
    minutes : M
        start no run after M
    dry_run
        show the number of runs only

    Examples
    --------
    topofl study study.toml --processes 2 --html study.html
    topofl study study.toml --dry-run
    topofl study "digits 30" --out out/digits-30
    topofl study all --data path/to/data --processes 2
    """
