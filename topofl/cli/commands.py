"""The commands and their options: what ``topofl COMMAND --help`` says is in these docstrings.

A function declares a command: its parameters are the options, and the section ``Parameters``
describes them, each with the word that stands for its value. Functions of other modules, which
:data:`COMMANDS` names, perform the commands.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from topofl.cli.options import (
    Function,
    Parser,
    data_options,
    json_options,
    parser_of,
    table_options,
    training_options,
    trust_options,
)

KINDS_OF_NAMES = (
    "topology", "algorithm", "model", "dataset", "partition", "augmentation", "mixing", "task",
    "attack", "clock", "compressor", "schedule", "metric",
)  # fmt: skip
"""What ``topofl list`` lists: the kinds of the catalogue of specs, and columns of metrics."""


def _names(text: str) -> list[str]:
    """Return names that are separated by commas, those with commas in double quotes."""
    return [name.strip() for row in csv.reader([text], skipinitialspace=True) for name in row]


def new(
    file: Annotated[Path, {"nargs": "?"}] = Path("experiment.toml"), force: bool = False
) -> None:
    """Write a commented experiment.toml that topofl run accepts as it is.

    Parameters
    ----------
    file : FILE
        the file to write (default: experiment.toml)
    force
        overwrite an existing file

    Examples
    --------
    topofl new
    topofl new ring.toml
    topofl new experiment.toml --force
    """


def list_names(
    kind: Annotated[str | None, {"nargs": "?", "choices": KINDS_OF_NAMES}] = None,
    needs: bool = False,
) -> None:
    """List the names for specs and configurations.

    Parameters
    ----------
    kind : KIND
        list only this kind: %(choices)s
    needs
        also list what algorithms require of graphs and weights

    Examples
    --------
    topofl list
    topofl list topology
    topofl list algorithm --needs
    topofl list topology --json
    """


def spectral(
    specs: Sequence[str],
    seed: int = 0,
    rounds: int | None = None,
    metrics: str | None = None,
    weights: str | None = None,
    html: Path | None = None,
    about: str | None = None,
    all: bool = False,
) -> None:
    """Compare graphs before training.

    Parameters
    ----------
    specs : SPEC
        a graph: name[:n][,key=value]*[,base=(SPEC)]; the name may be module:function, or a file
        (.graphml, .gml, .edgelist, .csv, .npz, .npy)
    seed
        seed of clients and measurements (default: 0)
    rounds : R
        rounds to measure (default: 100, and 500 for the curves of a page)
    metrics : NAMES
        more columns, separated by commas: module:function or names from topofl list metric
    weights : RULE
        rule that computes mixing weights, one of topofl list mixing or module:function (default:
        the graph's own, Metropolis-Hastings if it is undirected, or uniform)
    html : FILE
        also write a page: numbers, pictures, measurements
    about : GROUPS
        which columns, separated by commas: structure, paths, averaging, rounds, push-sum, data,
        cost (default: those that decide printed, and all in files and JSON)
    all
        print all columns

    Examples
    --------
    topofl spectral ring:100 exponential:100 "dcliques:100,inter=ring,seed=0"
    topofl spectral ring:100 dcliques:100,seed=0 --data digits --per-node 2 --all
    topofl spectral ring:100 --data digits --partition dirichlet_per_client,alpha=0.1
    topofl spectral random_regular:64,k=4,seed=1 --csv graphs.csv
    topofl spectral "link_failures,base=(torus:100),fail=0.1,recover=0.5,seed=0"
    topofl spectral graph.graphml graph.graphml,own_weights=true
    topofl spectral graph.edgelist --weights weighted_metropolis
    topofl spectral "mygraphs:wheel,n=100" --metrics mygraphs:mean_weight
    topofl spectral ring:100 exponential:100 --html report.html
    """


def recommend(
    config: Annotated[Path | None, {"nargs": "?"}] = None,
    n: int | None = None,
    max_degree: int | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    directed: bool = False,
    static: bool = False,
    lr: float | None = None,
    rounds: int | None = None,
    batch_size: int | None = None,
    hops: int | None = None,
    seed: int = 0,
    plot: Path | None = None,
) -> None:
    """Recommend topologies for given data and a communication budget.

    Parameters
    ----------
    config : CONFIG.toml
        an experiment: its data, model, learning rate, batch size and rounds
    n : N
        number of nodes, with --data
    max_degree : D
        most messages that a node sends, and that it receives, per round
    max_messages : M
        most messages of all nodes per round
    max_bytes : B
        most bytes of all nodes per round (with --data: of logistic regression)
    directed
        allow directed graphs, too
    static
        leave out time-varying graphs
    lr : LR
        learning rate of the training
    rounds : R
        rounds of the training
    batch_size : B
        examples per minibatch, with which gradient noise is measured
    hops : K
        rounds of averaging that H_K and N_K count: 10 or 20 (default: by --lr, or 10)
    seed
        seed of data and graphs (default: 0)
    plot : FILE
        draw predicted rounds (.png, .pdf, .svg)

    Examples
    --------
    topofl recommend --data digits --n 60 --per-node 2 --max-degree 6
    topofl recommend --data digits --n 60 --max-messages 240 --directed --static
    topofl recommend --data digits --partition one_class_per_node --n 60 --max-degree 6
    topofl recommend experiment.toml --max-degree 4 --plot rounds.png
    """


def explore(data: Path | None = None, port: int = 0, no_browser: bool = False) -> None:
    """Compare two topologies in a browser, with widgets (extra: explore).

    The page shows both graphs, label energy in their spectra, costs and predicted rounds, trains on
    both, and has the Python code that does the same. It offers the embedded digits and the datasets
    in --data, or in $TOPOFL_DATA, or in data/ and ../shared/data; nothing is downloaded. It is
    served on 127.0.0.1 only, until Ctrl-C.

    Parameters
    ----------
    data : DIR
        folder that contains datasets, directly or in subfolders
    port : P
        port on 127.0.0.1 (default: a free one)
    no_browser
        only print the address; do not open a browser

    Examples
    --------
    topofl explore
    topofl explore --data path/to/data
    topofl explore --port 8700 --no-browser
    """


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
    remove
        remove these runs; needs --where or --failed

    Examples
    --------
    topofl runs runs/sweeps
    topofl runs runs/sweeps --where topology.name=ring data.alpha=0.1
    topofl runs runs/sweeps --failed
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
    topofl compare runs/* --group-by topology,alpha --latex --plot curves.pdf --kind band
    topofl compare runs/* --group-by topology --latex --columns topology,accuracy,std
    """


def graphs(
    folder: Path,
    every: int = 1,
    labels: bool = False,
    html: Path | None = None,
    about: str | None = None,
) -> None:
    """Show which nodes received from which in a saved run, per round, such as learned graphs.

    Parameters
    ----------
    folder : RUN
        a folder that run (or History.save) wrote
    every : K
        every K-th round and the last (default: all)
    labels
        also read the data of the run: adds columns on labels, and orders nodes by them
    html : FILE
        also write a page: a picture with a slider, curves
    about : GROUPS
        which columns, separated by commas: structure, paths, averaging, rounds, push-sum, data,
        cost (default: structure, averaging, data)

    Examples
    --------
    topofl graphs runs/dpfl
    topofl graphs runs/dpfl --labels --html graphs.html
    topofl graphs runs/dpfl --every 10 --about structure --csv graphs.csv
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
) -> None:
    """Regenerate figures of the papers and check the papers' claims about them.

    Parameters
    ----------
    name : FIGURE
        a figure, or a paper for all of its figures
    list
        list papers, figures, and figures that are missing, and exit
    scale : SCALE
        smoke (seconds, no files), quick (default; minutes a figure and hours a paper on 2 cores) or
        paper; see --dry-run
    seeds : K
        runs of every arm (default: 1 to 5, by paper and scale)
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

    Examples
    --------
    topofl reproduce --list
    topofl reproduce dcliques-fig09 --scale smoke
    topofl reproduce dcliques-fig09 --scale paper --data path/to/data --seeds 5
    topofl reproduce dcliques --scale quick --data path/to/data --jobs 2 --report
    topofl reproduce dcliques --scale quick --data path/to/data --dry-run
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


def doctor(
    data: Path | None = None,
    out: Path = Path("runs"),
    model: str | None = None,
    shape: str | None = None,
) -> None:
    """Check the installation, and report what a bug report needs.

    The checks: versions of Python, topofl and the packages it needs; devices; datasets in --data,
    or in $TOPOFL_DATA, or in data/ and ../shared/data; whether runs can be saved; and two seconds
    of training on embedded data, compared with numpy. If something is wrong, the exit code is 1.
    With --model, it says instead how runs train a network: each layer, and the whole of it.

    Parameters
    ----------
    data : DIR
        folder that contains datasets, directly or in subfolders
    out : DIR
        folder in which runs are to be saved (default: runs)
    model : MODEL
        a network as module:function, or a name of topofl list model, with its arguments
    shape : SIZES
        shape of an example of --model, as 3,32,32 (default: one that its first layer takes)

    Examples
    --------
    topofl doctor
    topofl doctor --data path/to/data
    topofl doctor --json
    topofl doctor --model mynets:Net --shape 3,32,32
    """


def completion(shell: Literal["bash", "zsh"]) -> None:
    """Print a script that completes commands, options, names and paths in a shell.

    For bash, with the package bash-completion:
      topofl completion bash > ~/.local/share/bash-completion/completions/topofl
    For zsh, with a folder of fpath, before compinit in ~/.zshrc:
      topofl completion zsh > ~/.zsh/completions/_topofl

    Parameters
    ----------
    shell
        the shell that reads the script

    Examples
    --------
    topofl completion bash
    topofl completion zsh
    """


COMMANDS: dict[str, tuple[str, *tuple[Function, ...]]] = {
    "new": ("topofl.cli.programs:new", new),
    "list": ("topofl.cli.listing:list_names", list_names, json_options),
    "spectral": ("topofl.cli.graphs:spectral", spectral, data_options, table_options),
    "recommend": ("topofl.cli.graphs:recommend", recommend, data_options, table_options),
    "explore": ("topofl.cli.programs:explore", explore),
    "run": ("topofl.cli.run:run", run, training_options, json_options),
    "resume": ("topofl.cli.run:resume", resume, training_options, json_options, trust_options),
    "sweep": ("topofl.cli.programs:sweep", sweep, table_options),
    "runs": ("topofl.cli.runs:runs", runs, table_options),
    "compare": ("topofl.cli.compare:compare", compare, table_options),
    "graphs": ("topofl.cli.graphs:graphs", graphs, trust_options, table_options),
    "reproduce": ("topofl.cli.programs:reproduce", reproduce, json_options),
    "study": ("topofl.cli.programs:study", study, json_options),
    "doctor": ("topofl.cli.doctor:doctor", doctor, json_options),
    "completion": ("topofl.cli.listing:completion", completion),
}
"""By name: what performs a command, its declaration, and options that it shares with others.

The modules of what performs commands are imported only when they run.
"""


def make_parser() -> Parser:
    """Return the parser of all commands, which sets ``command`` to the name of what performs it."""
    return parser_of(COMMANDS)
