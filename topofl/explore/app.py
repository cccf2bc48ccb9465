"""The explorer as a marimo notebook: widgets, and calls of the functions that do the work."""

import marimo

app = marimo.App(width="medium", app_title="topofl explore")


@app.cell
def _():
    import marimo as mo

    from topofl.explore import model, results
    from topofl.explore.widgets import beside, said, widget, widgets

    return beside, mo, model, results, said, widget, widgets


@app.cell
def _(mo):
    mo.md("""
    # Two topologies on the same data

    Choose data and two graphs. Numbers and pictures show what can be known before training; then
    train on both.
    """)
    return


@app.cell
def _(mo, model, widget):
    known = model.sources()
    source_of = mo.ui.dropdown(known, value=next(iter(known)), label="dataset")
    n_of = widget("nodes", model.NODES, 30)
    seed_of = widget("seed", model.SEEDS, 0)
    _partitions = model.titled(model.PARTITIONS)
    partition_of = mo.ui.dropdown(_partitions, value=next(iter(_partitions)), label="divided by")
    return known, n_of, partition_of, seed_of, source_of


@app.cell
def _(partition_of, widgets):
    partition_values = widgets(partition_of.value)
    return (partition_values,)


@app.cell
def _(known, mo, n_of, partition_of, partition_values, seed_of, source_of):
    _others = mo.md("`topofl explore --data DIR` also offers the datasets in a folder.")
    mo.vstack(
        [
            mo.md("## Data"),
            mo.hstack([source_of, *([_others] if len(known) == 1 else [])], justify="start"),
            mo.hstack([partition_of, *partition_values.values()], justify="start", wrap=True),
            mo.hstack([n_of, seed_of], justify="start", wrap=True),
        ]
    )
    return


@app.cell
def _(mo, model, n_of, partition_of, partition_values, said, seed_of, source_of):
    nodes = model.Nodes(
        n_of.value, partition_of.value, partition_values.value, seed_of.value, source_of.value
    )
    with mo.status.spinner("Reading the data"):
        clients, _reason = model.clients_of(nodes)
    mo.stop(clients is None, said(_reason, "danger"))
    mo.md(nodes.source.note)
    return clients, nodes


@app.cell
def _(mo, model):
    topologies = model.titled(model.TOPOLOGIES)
    a_of = mo.ui.dropdown(topologies, value="exponential", label="A")
    b_of = mo.ui.dropdown(topologies, value="D-Cliques", label="B")
    return a_of, b_of


@app.cell
def _(a_of, widgets):
    a_values = widgets(a_of.value)
    return (a_values,)


@app.cell
def _(b_of, widgets):
    b_values = widgets(b_of.value)
    return (b_values,)


@app.cell
def _(a_of, a_values, b_of, b_values, mo):
    mo.vstack(
        [
            mo.md("## Topologies"),
            mo.hstack(
                [mo.vstack([a_of, *a_values.values()]), mo.vstack([b_of, *b_values.values()])],
                justify="start",
                wrap=True,
                gap=3,
            ),
        ]
    )
    return


@app.cell
def _(a_of, a_values, b_of, b_values, clients, mo, model, nodes, said):
    chosen = model.candidates(
        {"A": (a_of.value, a_values.value), "B": (b_of.value, b_values.value)}, nodes.n, nodes.seed
    )
    with mo.status.spinner("Building the graphs"):
        graphs, reasons = model.graphs_of(chosen, clients)
    mo.vstack([said(f"{name}: {reason}", "danger") for name, reason in reasons.items()])
    return chosen, graphs


@app.cell
def _(beside, clients, graphs, mo, results):
    mo.stop(not graphs)
    mo.vstack([mo.md("## The graphs"), beside(*results.drawings(graphs, clients))])
    return


@app.cell
def _(chosen, clients, graphs, mo, results, said, training):
    mo.stop(not graphs)
    predicted = results.predictions(graphs, clients, training)
    mo.vstack(
        [
            mo.md("## Before training"),
            mo.Html(results.numbers(graphs, chosen, clients, predicted)._repr_html_()),
            mo.md(
                "For all numbers but the spectral gap, less is better. Predicted rounds have an "
                "interval, and are fitted to D-SGD with logistic regression; SGP computes the same "
                "models where weights are doubly stochastic. Numbers of graphs that change are "
                "means over rounds."
            ),
            *(said(text, "warn") for text in results.warnings_of(predicted)),
        ]
    )
    return


@app.cell
def _(beside, clients, graphs, mo, results):
    mo.stop(not graphs)
    mo.vstack(
        [
            mo.md("""
    ## Where the labels lie in the spectrum

    Energy near 0 is averaged away by one exchange; energy near 1 or -1 stays for many rounds.
    """),
            beside(*results.spectra(graphs, clients)),
        ]
    )
    return


@app.cell
def _(mo, model, widget):
    rounds_of = widget("rounds", model.ROUNDS, 60)
    lr_of = widget("learning rate", model.RATES, 0.5)
    batch_of = widget("minibatch", model.BATCHES, 8)
    train = mo.ui.run_button(label="Train on both")
    mo.vstack(
        [
            mo.md("## Training"),
            mo.md("Logistic regression, by the methods in the table."),
            mo.hstack([rounds_of, lr_of, batch_of, train], justify="start", wrap=True),
        ]
    )
    return batch_of, lr_of, rounds_of, train


@app.cell
def _(batch_of, lr_of, model, rounds_of, seed_of):
    training = model.Training(rounds_of.value, lr_of.value, batch_of.value, seed_of.value)
    return (training,)


@app.cell
def _(beside, chosen, clients, graphs, mo, results, train, training):
    mo.stop(not graphs or not train.value, mo.md("Not trained yet with these settings."))
    histories = {}
    for _name, _graph in mo.status.progress_bar(graphs.items(), title="Training"):
        histories[_name] = training.history(_graph, chosen[_name][1], clients)
    beside(results.curves(histories))
    return


@app.cell
def _(chosen, mo, nodes, results, training):
    program = results.code_of(nodes, chosen, training)
    mo.vstack(
        [
            mo.md(f"## The same in Python\n\n```python\n{program}```"),
            mo.download(program, filename="explored.py", label="Download"),
        ]
    )
    return


if __name__ == "__main__":
    app.run()
