// Draws the cell that is chosen, the same graphs in other cells, and spectra; computes rank correlations.
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const element = (id) => document.getElementById(id);
  const [x, y, scenario, partition, method] = ["x", "y", "scenario", "partition", "method"].map(element);
  const pressed = { family: new Set(), partitions: new Set(), nodes: new Set(), graph: new Set() };
  const OPTIONS = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: { theme: "own", disableDefaultStyle: false } };
  let views = [];
  let region = null;
  let turn = 0;

  const unique = (values) => Array.from(new Set(values));
  const text = (value) => value === null ? "n/a" : Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  const signed = (value) => Number.isNaN(value) ? "n/a" : (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(3);
  const titleOf = (cell) => `${cell.scenario}, ${cell.partition}, ${cell.method}`;

  // Ranks from 1; equal values share the mean of their ranks.
  function ranks(values) {
    const order = values.map((_, k) => k).sort((a, b) => values[a] - values[b]);
    const found = new Array(values.length);
    for (let start = 0, end; start < order.length; start = end) {
      for (end = start + 1; end < order.length && values[order[end]] === values[order[start]];) end++;
      for (let k = start; k < end; k++) found[order[k]] = (start + end + 1) / 2;
    }
    return found;
  }

  // Spearman's rank correlation: Pearson's correlation of the ranks.
  function spearman(points) {
    const [a, b] = ["x", "y"].map((field) => ranks(points.map((point) => point[field])));
    const mean = (points.length + 1) / 2;
    const sum = (p, q) => p.reduce((total, value, k) => total + (value - mean) * (q[k] - mean), 0);
    return sum(a, b) / Math.sqrt(sum(a, a) * sum(b, b));
  }

  // Points of a cell; runs that diverged are placed beyond the worst end of the outcome.
  function pointsOf(cell) {
    const xs = study.columns[cell.x][x.value];
    const ys = cell.y[y.value];
    const known = ys.filter((value, k) => value !== null && !cell.diverged[k]);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const worst = study.outcomes[y.value] > 0 ? low - 0.05 * (high - low || 1) : high + 0.05 * (high - low || 1);
    const points = cell.graphs.map((graph, k) => ({
      graph: cell.diverged[k] ? `${graph} (diverged)` : graph, name: graph, family: cell.families[k],
      x: xs[k], y: cell.diverged[k] && known.length ? worst : ys[k], diverged: cell.diverged[k], key: graph,
    })).filter((point) => point.x !== null && point.y !== null);
    points.forEach((point) => {
      point.said = `${point.graph}, ${point.family}: ${x.value} ${text(point.x)}, ${y.value} ${text(point.y)}`;
    });
    return points;
  }

  function fill(select, values, wished) {
    const before = wished ?? select.value;
    select.replaceChildren(...values.map((value) => new Option(value, value)));
    select.value = values.includes(before) ? before : values[0];
  }

  // Offers only the partitions and methods that the scenario has.
  function offer(wished = {}) {
    const own = study.cells.filter((cell) => cell.scenario === scenario.value);
    fill(partition, unique(own.map((cell) => cell.partition)), wished.partition);
    const narrowed = own.filter((cell) => cell.partition === partition.value);
    fill(method, unique(narrowed.map((cell) => cell.method)), wished.method);
  }

  const current = () => study.cells.find((cell) => cell.scenario === scenario.value && cell.partition === partition.value && cell.method === method.value);

  const families = study.families;
  const indexOf = (family) => families.indexOf(family);
  function mark(button, family) {
    button.dataset.symbol = LETTERS[markerOf(indexOf(family))];
    button.style.setProperty("--own", colorOf(indexOf(family)));
  }

  // Whether a cell is among those chosen by partition and number of nodes.
  const isCellLit = (cell) => (!pressed.partitions.size || pressed.partitions.has(cell.partition))
    && (!pressed.nodes.size || pressed.nodes.has(String(cell.nodes)));
  const isGraphLit = (graph, family) => (!pressed.family.size || pressed.family.has(family))
    && (!pressed.graph.size || pressed.graph.has(graph)) && (!region || region.has(graph));

  function light() {
    const some = pressed.family.size || pressed.graph.size || region;
    for (const { view, cell, points, figure } of views) {
      const lit = some ? Object.fromEntries(points.filter((point) => isGraphLit(point.name, point.family)).map((point) => [point.key, true])) : null;
      view.signal("lit", lit).signal("named", placed(view, points, pressed.graph)).runAsync();
      figure.classList.toggle("faint", !isCellLit(cell));
    }
    for (const figure of document.querySelectorAll("#spectra-panels figure")) {
      figure.classList.toggle("faint", Boolean(some) && !isGraphLit(figure.dataset.graph, figure.dataset.family));
    }
    for (const button of document.querySelectorAll("[data-value]")) {
      button.setAttribute("aria-pressed", String(pressed[button.dataset.kind].has(button.dataset.value)));
    }
    for (const row of element("names").tBodies[0].rows) {
      row.classList.toggle("lit", Boolean(some) && isGraphLit(row.dataset.graph, row.dataset.family));
    }
  }

  function toggle(kind, value) {
    pressed[kind].has(value) ? pressed[kind].delete(value) : pressed[kind].add(value);
    light();
  }

  function button(kind, value, name) {
    const made = Object.assign(document.createElement("button"), { type: "button", className: "entry", textContent: name });
    Object.assign(made.dataset, { kind, value });
    made.setAttribute("aria-pressed", "false");
    made.addEventListener("click", () => toggle(kind, value));
    return made;
  }

  function legend(kind, values) {
    const box = document.querySelector(`[data-legend=${kind}]`);
    for (const value of values) {
      const made = button(kind, String(value), typeof value === "number" ? value.toLocaleString("en-US") : value);
      if (kind === "family") mark(made, value);
      box.append(made);
    }
  }

  // Graphs inside the region that was dragged over, given by intervals of x and y.
  function select(points, intervals) {
    const inside = (value, [a, b]) => Math.min(a, b) <= value && value <= Math.max(a, b);
    const found = intervals?.x && points.filter((point) => inside(point.x, intervals.x) && inside(point.y, intervals.y));
    region = found ? new Set(found.map((point) => point.name)) : null;
    light();
  }

  function correlate(cell, points) {
    const value = spearman(points);
    const left = cell.graphs.filter((graph) => !points.some((point) => point.name === graph));
    element("correlation").innerHTML = "Spearman's rank correlation <b></b> <span></span>";
    element("correlation").querySelector("b").textContent = signed(value);
    element("correlation").querySelector("span").textContent = `over ${points.length} graphs`;
    element("correlation").dataset.spearman = value;
    const seeds = `mean${cell.seeds > 1 ? `s over ${cell.seeds} seeds` : " of one seed"}`;
    const missing = left.length ? ` Not shown, since ${x.value} or ${y.value} is not defined: ${left.join(", ")}.` : "";
    const lost = points.filter((point) => point.diverged).map((point) => point.name);
    const diverged = lost.length ? ` Diverged, and placed at the worst end: ${lost.join(", ")}.` : "";
    const caption = element("caption");
    caption.innerHTML = "<b></b>";
    caption.firstChild.textContent = `${y.value} over ${x.value}; ${titleOf(cell)}.`;
    caption.append(` Each point is a graph (${seeds}).${missing}${diverged}`);
  }

  function list(points) {
    element("names-caption").textContent = "All graphs of the plot, best first";
    element("names-x").textContent = x.value;
    element("names-y").textContent = y.value;
    const sign = study.outcomes[y.value];
    const rows = [...points].sort((a, b) => sign * (b.y - a.y)).map((point) => {
      const row = document.createElement("tr");
      Object.assign(row.dataset, { graph: point.name, family: point.family });
      const head = Object.assign(document.createElement("th"), { scope: "row" });
      const name = button("graph", point.name, point.graph);
      mark(name, point.family);
      name.setAttribute("aria-label", `${point.graph}, ${point.family}`);
      head.append(name);
      row.append(head, ...[point.x, point.diverged ? null : point.y].map((value) => {
        return Object.assign(document.createElement("td"), { textContent: text(value) });
      }));
      return row;
    });
    element("names").tBodies[0].replaceChildren(...rows);
  }

  async function embed(place, spec) {
    return (await vegaEmbed(place, spec, OPTIONS)).view;
  }

  async function drawMain(cell, points) {
    const narrow = matchMedia("(max-width: 30rem)").matches;
    const touch = matchMedia("(pointer: coarse)").matches;  // dragging scrolls there
    const description = `Scatter plot of ${y.value} over ${x.value}, ${titleOf(cell)}; ${points.length} graphs, listed in the table.`;
    const spec = scatterSpec(points, families, { x: x.value, y: y.value }, { small: false, description, height: narrow ? 320 : 420, brush: !touch });
    const view = await embed(element("scatter"), spec);
    if (!touch) view.addSignalListener("region", (_, intervals) => select(points, intervals));
    view.addEventListener("click", (_, item) => { if (item?.datum?.name) toggle("graph", item.datum.name); });
    return { view, cell, points, figure: element("scatter").closest("figure") };
  }

  function panelOf(cell, points) {
    const figure = document.createElement("figure");
    figure.innerHTML = "<h3><button type=button></button></h3><span class=number></span><div class=chart></div>";
    const show = figure.querySelector("button");
    show.textContent = titleOf(cell);
    show.setAttribute("aria-label", `Show ${titleOf(cell)} in the large plot`);
    show.addEventListener("click", () => {
      scenario.value = cell.scenario;
      offer(cell);
      draw();
      element("plot").scrollIntoView();
      method.focus({ preventScroll: true });
    });
    figure.querySelector(".number").textContent = `${signed(spearman(points))}, ${points.length} graphs`;
    return figure;
  }

  async function drawPanel(cell, figure, points) {
    const description = `Small scatter plot of ${y.value} over ${x.value}, ${titleOf(cell)}.`;
    const spec = scatterSpec(points, families, { x: x.value, y: y.value }, { small: true, description, height: 140, brush: false });
    return { view: await embed(figure.querySelector(".chart"), spec), cell, points, figure };
  }

  function others(cell) {
    const same = (other) => other.scenario === cell.scenario && other.partition === cell.partition;
    return study.cells.filter((other) => other !== cell && (other.method === cell.method || same(other)));
  }

  async function draw() {
    const own = ++turn;
    const cell = current();
    const points = pointsOf(cell);
    region = null;
    correlate(cell, points);
    list(points);
    const panels = others(cell).map((other) => [other, pointsOf(other)]).filter(([, shown]) => shown.length > 2);
    const figures = panels.map(([other, shown]) => panelOf(other, shown));
    element("panels").replaceChildren(...figures);
    element("elsewhere").hidden = !panels.length;
    views.forEach(({ view }) => view.finalize());
    views = [];
    const made = await Promise.all([
      drawMain(cell, points), ...panels.map(([other, shown], k) => drawPanel(other, figures[k], shown)),
    ]);
    if (own !== turn) return made.forEach(({ view }) => view.finalize());
    views = made;
    light();
    document.body.dataset.drawn = own;
  }

  async function drawSpectra() {
    const top = Math.max(...study.spectra.flatMap((shown) => shown.heights));
    for (const shown of study.spectra) {
      const figure = document.createElement("figure");
      Object.assign(figure.dataset, { graph: shown.graph, family: shown.family });
      figure.innerHTML = "<h3></h3><div class=chart></div><figcaption></figcaption>";
      figure.querySelector("h3").textContent = shown.graph;
      const slow = `${(100 * shown.slow).toFixed(1)} % of the energy beyond \u00b1${shown.limit}`;
      figure.querySelector("figcaption").textContent = `${text(shown.degree)} neighbors, spectral gap ${text(shown.gap)}, H_1 ${text(shown.H_1)}, H_10 ${text(shown.H_10)}; ${slow}`;
      element("spectra-panels").append(figure);
      await embed(figure.querySelector(".chart"), spectrumSpec(shown, top, colorOf(indexOf(shown.family)), `Label energy over eigenvalues of ${shown.graph}: ${slow}.`));
    }
  }

  fill(x, study.predictors, "H_10");
  fill(y, Object.keys(study.outcomes), "learning phase");
  fill(scenario, unique(study.cells.map((cell) => cell.scenario)), "digits 60");
  offer({ partition: "2 shards", method: "D-SGD" });
  legend("family", families.filter((family) => study.cells.some((cell) => cell.families.includes(family))));
  legend("partitions", unique(study.cells.map((cell) => cell.partition)));
  legend("nodes", unique(study.cells.map((cell) => cell.nodes)).sort((a, b) => a - b));
  element("clear").addEventListener("click", () => {
    Object.values(pressed).forEach((chosen) => chosen.clear());
    draw();
  });
  for (const one of [x, y, scenario, partition, method]) {
    one.addEventListener("change", () => { offer(); draw(); });
  }
  draw().then(drawSpectra).then(() => { document.body.dataset.ready = "yes"; });
})();
