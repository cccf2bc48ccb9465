"""What commands refuse: the exit code, the command line, and parts of the one line on stderr."""

from pathlib import Path

import pytest

from tests.refusals import named
from tests.rows.commands import FAILING, FIGURE, SIX, contents, furnish, refusal

RUN, PAGE = "run small.toml", "study 'digits 30' --minutes 0 --html"
GROUPS, PLOT = f"compare {SIX} --group-by topology", "--plot t.png"

WRONG = [
    # Words and options
    ("", ("arguments are required: COMMAND", "--help)")),
    ("spectrl", ("got 'spectrl'; did you mean 'spectral'?", "--help)")),
    ("spectral", ("arguments are required: SPEC", "--help)")),
    ("spectral ring:5 --cvs x", "arguments: --cvs x; did you mean '--csv'?"),
    (f"{RUN} --sett=1", "arguments: --sett=1; did you mean '--set'?"),
    ("list --zzz", "unrecognized arguments: --zzz (see topofl list --help)"),
    ("spectral ring:5 --json --markdown", ("not allowed with argument", "--help)")),
    ("spectral ring:5 --metrics slem --all --about data", "not allowed with argument"),
    (f"{RUN} --skip-done --force", "not allowed with argument"),
    ("doctor --shape 3,32,32", "`--shape` must come with --model, got 3,32,32; give both"),
    ("doctor --model gn_lenet --shape 3x3", "`--shape` must be numbers from 1, such as 3,32,32"),
    ("doctor --model lenet", "`--model`: there is no model 'lenet'; did you mean 'gn_lenet'?"),
    ("list topologie", ("got 'topologie'; did you mean 'topology'?", "--help)")),
    ("compare x --target most", "invalid float value: 'most'"),
    (f"{RUN} --out ''", "must be a path, got empty text; the current folder is '.'"),
    # Specs of graphs, and data for them
    ("spectral rng:5", "rng:5: there is no topology 'rng'; did you mean 'ring'?"),
    ("spectral ring:5 torus:9,row=3", "torus:9,row=3: `torus` takes n, rows, not 'row'; did yo"),
    ("spectral ring", "ring: `ring` needs `n`; add n=..."),
    (f"spectral {FAILING.format('rng:5')}", "seed=0: `base`: there is no topology 'rng'; did y"),
    (f"spectral {FAILING.format('torus:9,row=3')}", "`base`: `torus` takes n, rows, not 'row';"),
    ("spectral 'participation,base=(ring:5'", "5' must close its brackets, ')' is missing"),
    ("spectral ring:x", ("Python finds no module ring in ", "the colon, as in ring:100")),
    ("spectral ring:", "a number or a function after its colon: ring:100 or mymodule:wheel"),
    ("spectral ring:100000000", "`n` must be at most 10,000,000"),
    (f"spectral ring:1{400 * '0'}", "`n` must be at most 10,000,000"),
    ("spectral ring:5 --rounds 0", "`rounds` must be at least 1"),
    ("spectral ring:5 --about path", "did you mean 'paths'"),
    ("spectral ring:5 --weights metropolis", "`--weights`: there is no mixing 'metropolis'"),
    ("spectral dcliques --data digits", "got none"),
    ("spectral ring:5 --data digits,n=6", "the same number of nodes, as ring:100, got [5, 6]"),
    (f"spectral ring:5 {FAILING.format('ring:6')} --data digits", "must have the same number of"),
    ("spectral ring:5 --data digits --per-node 0", "`per_node` must be at least 1, got 0"),
    ("spectral ring:5 --data no/folder", "with MNIST, got 'no/folder', which does not exist"),
    ("spectral ring:5 --data thesis", "a folder with MNIST, got"),
    ("spectral ring:5 --data digitz", "`--data`: there is no dataset 'digitz'; did you mean"),
    ("spectral ring:5 --partition iid", "`--partition` must come with --data, got --partition"),
    (
        "spectral ring:5 --data digits --partition shard",
        "`--partition`: there is no partition 'shard'; did you mean 'shards'?",
    ),
    (
        "spectral ring:5 --data digits,partition=iid --partition iid",
        "`--partition` must not repeat what `--data` says, got 'partition' in both",
    ),
    ("spectral ring:5 --csv no/folder/x.csv", "No such file or directory"),
    # Files of graphs
    ("spectral none.npy", "No such file"),
    ("spectral g.tsv", "must be of one of the kinds .graphml, .gml, .edgelist, .csv, .npz, .np"),
    ("spectral edges", ".npy, got edges"),
    ("spectral ring.npy,seed=0", "takes n, directed, own_weights, drop_self_loops, not 'seed'"),
    ("spectral ring.npy:9", "`n` must be left out or be 10"),
    ("spectral ring.npy,directed=true", "`directed` must be left out for .npy files"),
    (
        "spectral 'matchings,base=(ring.npy,own_weights=true)'",
        "`base` must not have its own mixing weights, ring does",
    ),
    # Recommendations
    ("recommend --data digits --max-degree 2", "`--n` must be given"),
    ("recommend --max-degree 2", "exactly one of CONFIG.toml and `--data` must be given, got n"),
    ("recommend --data digits --n 12", "one of the arguments --max-degree"),
    ("recommend small.toml --max-degree 2 --max-bytes 5", "not allowed with argument"),
    ("recommend --data digits --n 12 --max-messages 3 --static", "at least 2(n-1)=22"),
    # Configurations, which --dry-run refuses as well
    (f"{RUN} --set saving.every=0", "small.toml: [saving] `every` must be at least 1, got 0"),
    (f"{RUN} --set saving.resume=true", "small.toml: [saving] `Saving` takes every, models, no"),
    (f"{RUN} --set algorithm.name=dgsd --json", "did you mean 'dsgd'"),
    (f"{RUN} --set model=gn_lenet", "[model] `in_shape[1]` must be at least 15, got 8"),
    ("run bad.toml", "bad.toml: not TOML: Expected ']'"),
    ("run none.toml", "`path` must be a TOML file, got none.toml, which does not exist"),
    ("run .", ("`path` must be a TOML file, got", "which is a folder; pass a file such as run.to")),
    # Folders of runs
    (f"{RUN} --out thesis", "thesis holds files other than a run"),
    (f"{RUN} --out a", "a holds a finished run; choose another folder with --out, replace it w"),
    ("run a/config.toml --out a --set run.rounds=1", "would be overwritten"),
    (f"{RUN} --store s --out a", "`--store` must be given without `--out`; leave one out"),
    (f"{RUN} --store s --force", "`--store` must be given without `--force`; leave one out"),
    (f"{RUN} --store s --log a.l", "`--store` must be given without `--log`; leave one out"),
    (f"{RUN} --store s --tensorboard a", "`--store` must be given without `--tensorboard`; lea"),
    ("resume thesis", "holds no run to continue: config.toml is missing"),
    ("resume a --set algorithm.lr=0.1", "a is finished, so only `--set run.rounds=N` is allowe"),
    ("resume a --set data.n=9", "a is finished, so only `--set run.rounds=N` is allowed, got ["),
    (
        "resume a --set algorithm.lr=0.1 --set run.rounds=6",
        "a must be continued with the settings of its run, but algorithm.lr was 0.5, is 0.1; leave",
    ),
    (
        f"{RUN} --out a --skip-done --set topology=ring --set algorithm.lr=0.1 --set run.rounds=9",
        "a holds another finished run: algorithm.lr was 0.5, is 0.1; run.rounds was 4, is 9; "
        "choose another folder with --out, or replace the run with --force instead of --skip-done",
    ),
    (
        f"{RUN} --out a --skip-done --set algorithm=dsgt,lr=0.3 --set topology=star --set data.n=12"
        " --set run.seed=8 --set data.seed=7",
        "more differences; choose another",
    ),
    # Tables of runs
    ("compare a none", "RUN must be a folder that topofl run or topofl sweep wrote, got none, whi"),
    ("compare a --target 80", "must be above 0 and at most 1, got 80"),
    (f"compare a b b/history {PLOT}", "got the same one as 'b' and 'b/history'"),
    ("compare a --plot t.tpg", "`--plot` must end in .png, .pdf or .svg, got t.tpg"),
    ("compare a --x seconds", "`--x` must come with --plot, got --x seconds without; add --plot"),
    (
        f"compare a {PLOT} --x seconds",
        "`--x seconds` must come with --hardware for runs without simulated seconds, as a; add",
    ),
    ("compare a --column x", "`--column` must be one of accuracy, loss, got 'x'"),
    ("compare a --columns topolgy", "did you mean 'topology'"),
    ("compare a --columns topology,topology", "`--columns` must have distinct names, got 'topo"),
    ("compare a --columns ''", "`--columns` must name at least one column, got none; omit it f"),
    ("compare a --baseline ring", "`--baseline` must come with --group-by"),
    ("compare a --over ring", "`--over` must come with --group-by"),
    ("compare a --equal megabytes", "`--equal` must come with --group-by"),
    ("compare a --kind band", "`--kind` must come with --group-by"),
    ("compare a --band range", "`--band` must come with --group-by"),
    ("compare store", "add --group-by"),
    (f"compare {SIX} --group-by init", "`--group-by` must name every setting that varies"),
    (f"{GROUPS} --band range", "`--band` must come with --plot"),
    (f"{GROUPS} --kind heat_map", "`--kind` must come with --plot"),
    (f"{GROUPS} {PLOT} --kind violin --x rounds", "`--x` must come with --kind band or pareto"),
    (f"{GROUPS} {PLOT} --kind violin --band range", "`--band` must come with --kind band, node"),
    (f"{GROUPS} --columns 'accuracy std'", "`--columns` must be named as in the printed table,"),
    ("compare none --group-by topology", "none, which does not exist"),
    # Graphs of runs
    ("graphs b", "has no mixing matrices, since its algorithm exchanges nothing"),
    ("graphs a/history --labels", "`--labels` needs the configuration of the run"),
    ("graphs a --every 0", "`--every` must be at least 1, got 0"),
    ("graphs a --about colour", "got 'colour'"),
    # Sweeps and stores
    ("list method", "got 'method'; did you mean 'algorithm'?"),
    ("sweep base.toml --grid topology", "`--grid` must be key=value,value"),
    ("sweep base.toml --points missing.json", "got missing.json, which does not exist"),
    ("sweep base.toml --points base.toml", "`--points` must be a JSON file"),
    ("sweep base.toml --points points.json --grid a=1", "`--points` must be given without `--g"),
    ("sweep base.toml --search 3 --shard 1/2", "`--search` must be given without `--shard`"),
    ("sweep base.toml --search 3", "give `--grid`"),
    ("sweep base.toml --grid 'algorithm.lr=uniform(0.1,1)'", "draw points by --random K or --s"),
    ("sweep base.toml --slurm timeout", "`--slurm` must be key=value"),
    ("sweep base.toml --slurm a=1 --dask tcp://a:1", "must be given without `--dask`"),
    ("runs missing", "missing must be a store of runs, but it does not exist"),
    ("runs . --failed", "`--failed` must be given for a store, . holds folders of topofl run"),
    ("runs . --remove", "`--remove` must be given for a store, . holds folders of topofl run"),
    ("runs store --bibtex --failed", "`--bibtex` must be given without --failed and --remove"),
    ("runs store --remove", "`--remove` must be given with --where or --failed"),
    ("runs store --where topology.nme=ring", "did you mean 'topology.name'?"),
    ("runs store --where ring", "`--where` must be key=value"),
    ("runs store --columns algorithm.rl", "did you mean 'algorithm.lr'?"),
    # Programs that have tests of their own
    ("new mine.json", "`FILE` must end in .toml, got mine.json"),
    ("new nowhere/mine.toml", "No such file or directory"),
    ("new small.toml", "got small.toml, which exists"),
    ("explore --port -1", "`--port` must be between 0 and 65535, got -1"),
    ("explore --port 65536", "`--port` must be between 0 and 65535, got 65536"),
    ("explore --data nowhere", "--data must be a folder, got nowhere"),
    ("study", "CONFIG.toml must be given, or scenarios of our study, or 'all'"),
    ("study a.toml --html a.pdf", "`--html` must be a file that ends in .html, got a.pdf"),
    ("study a.toml", "`path` must be a TOML file, got a.toml, which does not exist"),
    ("study 'digits 31'", "SCENARIO must be one of 'digits 60'"),
    (f"{PAGE} folder.html", "`--html` must be a file, got folder.html, a folder; name a file i"),
    (f"{PAGE} file/a.html", "that can be written, got file/a.html: Not a directory: "),
    (f"{PAGE} link.html", "that can be written, got link.html: Not a directory: "),
    ("reproduce", "name a figure or a paper"),
    (f"reproduce {FIGURE} --scale huge", "`--scale` must be one of"),
    ("reproduce dclique", "there is no figure 'dclique'; did you mean 'dcliques'"),
    ("reproduce dcliques-fig2", "dcliques-fig02 is not reproduced: pseudocode of D-SGD"),
    ("reproduce dcliques-fig01", "dcliques-fig01 needs the files of mnist"),
    ("reproduce dcliques-fig01 --data nowhere", "there is no folder nowhere"),
    (f"reproduce {FIGURE} --jobs 0", "`--jobs` must be at least 1"),
    (f"reproduce {FIGURE} --hours 6", "`--hours` must be given with `--until-decided`"),
    (f"reproduce {FIGURE} --device abacus", "abacus"),
]
"""Command lines that are wrong, exit code 2."""

FAILED = [
    (f"{RUN} --set algorithm.lr=1e38", ("loss of node", "round", "lr=1e+38")),
    (f"{RUN} --out small.toml/x", "`--out` must be a folder that can be written to, "),
    (f"{RUN} --out small.toml/x", "small.toml is not, got small.toml/x; name another"),
]
"""Those of runs that fail, exit code 1."""

ROWS = [*((2, *row) for row in WRONG), *((1, *row) for row in FAILED)]


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("refused"))
        patch.delenv("TOPOFL_DATA", raising=False)
        furnish(folder)
        yield folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1][:40]}: {named((0, row[2]))}")
def test_commands_refuse_in_one_line_and_leave_everything_as_it_was(furnished, capsys, row):
    code, line, message = row
    before = contents(furnished)
    lines = [line, f"{line} --dry-run"] if line.startswith(f"{RUN} --set") and code == 2 else [line]
    for words in lines:
        said = refusal(capsys, words, code)
        assert all(part in said for part in ((message,) if isinstance(message, str) else message))
    assert contents(furnished) == before
    assert not {"new", "s", "runs"} & {path.name for path in furnished.iterdir()}


FILES = {
    "g.graphml": ["", "<no graph>"],
    "g.gml": ["", "no graph"],
    "g.npz": ["no graph"],
    "g.npy": ["no graph"],
    "g.edgelist": ["b a\na c 1 2\n", "\0"],
    "g.csv": ["a,b\nb,c,1,2\n"],
}
"""Texts that are no graphs, by the names of their files."""


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_graphs_are_refused_by_name(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    for text in FILES[name]:
        Path(name).write_text(text)
        assert f"{name} cannot be read as {Path(name).suffix}" in refusal(
            capsys, f"spectral {name}"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g.edgelist: b a\na c 1 2", "line 2 must be 'source target' or"),
        ("g.csv: a,b\nb", "line 2 must be 'source,target' or"),
        ("g.csv: a,b\n,c", "line 2 must be 'source,target'"),
        ("g.csv: a,b,1\nb,c,far", "line 2 must have a number as weight, got 'far'"),
        ("g.csv: person,friend\na,b\nb,c", "a header, got 'person,friend', "),
        ("g.csv: person,friend\na,b\nb,c", "begin with the header"),
        (
            "g.edgelist: 0 1 0.5\n# back\n1 0 0.1",
            "line 3 must repeat the weight 0.5 of the edge 1 0",
        ),
        ("g.edgelist: 0 1 0.5\n# back\n1 0 0.1", ", got 0.1; pass directed=true"),
        ("g.edgelist: 0 1\n0 1 0.5", "line 2 must repeat the weight 1 of the edge"),
    ],
)
def test_lines_of_files_are_refused_by_their_numbers(tmp_path, monkeypatch, capsys, text, message):
    monkeypatch.chdir(tmp_path)
    name, _, lines = text.partition(": ")
    Path(name).write_text(f"{lines}\n")
    assert message in refusal(capsys, f"spectral {name}")
