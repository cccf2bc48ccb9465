"use strict";
// Vega-Lite specifications. Colors are variables of the style sheet, which also knows dark mode and paper.
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"];
const LETTERS = ["\u25cf", "\u25a0", "\u25b2", "\u25c6", "\u271a", "\u25bc", "\u25b6"];

// Color and marker of a family: both repeat, and the markers are shifted each time the colors begin again, so that the
// pairs of 49 families differ.
const colorOf = (k) => `var(--family-${k % SYMBOLS.length})`;
const markerOf = (k) => (k + Math.floor(k / SYMBOLS.length)) % SYMBOLS.length;

const CONFIG = {
  background: null,
  font: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
  view: { stroke: "var(--rule)" },
  axis: { labelColor: "var(--ink)", titleColor: "var(--ink)", gridColor: "var(--rule)", tickColor: "var(--rule)",
    domainColor: "var(--soft)", labelFontSize: 11, titleFontSize: 13, titleFontWeight: "normal" },
};

// Ticks of a symmetric logarithmic scale: 0 and powers of ten, with 2 and 5 between them if these are few.
function ticks(values, floor) {
  const top = Math.max(...values);
  const powers = [];
  for (let k = Math.ceil(Math.log10(floor)); 10 ** k <= top; k++) powers.push(k);
  const steps = powers.length < 3 ? [1, 2, 5] : [1];
  const all = powers.flatMap((k) => steps.map((step) => Number(`${step}e${k}`)));
  return [0, ...all].filter((tick) => tick <= top && tick >= Math.min(...values, top));
}

// Ends of a symmetric logarithmic scale with room on both sides; Vega's own padding is far too wide near 0.
function ends(values, floor) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => Math.log1p(value / floor));
  const room = 0.03 * (high - low || 1);
  return [low - room, high + room].map((end) => floor * Math.sign(end) * Math.expm1(Math.abs(end)));
}

// A logarithmic axis where values span more than a factor of 30, else a linear one.
function axis(field, title, values, small) {
  const top = Math.max(...values);
  const positive = values.filter((value) => value > 1e-3 * top);
  const wide = Math.min(...values) >= 0 && positive.length && top / Math.min(...positive) > 30;
  const floor = 1e-3 * top;
  const padding = small ? 4 : 10;  // pixels, so that no point lies on the frame
  const grid = small ? { tickCount: 3, labelFontSize: 10, grid: false } : { tickCount: 6 };
  return {
    field, type: "quantitative", title: small ? null : title,
    scale: wide ? { type: "symlog", constant: floor, zero: false, nice: false, domain: ends(values, floor) } : { zero: false, nice: true, padding },
    axis: wide
      ? { ...grid, values: ticks(values, floor), format: "~g", labelOverlap: true }
      : { ...grid, format: top >= 1e5 ? "~s" : "~g", labelOverlap: true },
  };
}

function encoding(points, families, names, small) {
  return {
    x: axis("x", names.x, points.map((point) => point.x), small),
    y: axis("y", names.y, points.map((point) => point.y), small),
    color: { field: "family", type: "nominal", legend: null,
      scale: { domain: families, range: families.map((_, k) => colorOf(k)) } },
    shape: { field: "family", type: "nominal", legend: null, scale: { domain: families, range: families.map((_, k) => SYMBOLS[markerOf(k)]) } },
    opacity: { condition: { test: "!lit || lit[datum.key]", value: 0.9 }, value: 0.12 },
    description: { field: "said", type: "nominal" },
    tooltip: [
      { field: "graph", type: "nominal" },
      { field: "family", type: "nominal" },
      { field: "x", type: "quantitative", title: names.x, format: ".4~g" },
      { field: "y", type: "quantitative", title: names.y, format: ".4~g" },
    ],
  };
}

function scatterSpec(points, families, names, { small, description, height, brush }) {
  const marks = { mark: { type: "point", filled: true, size: small ? 22 : 80 }, encoding: encoding(points, families, names, small) };
  if (brush) marks.params = [{ name: "region", select: { type: "interval", mark: { fill: "var(--measured)", fillOpacity: 0.12, stroke: "var(--measured)" } } }];
  const { x, y } = marks.encoding;
  const place = (field, usual) => ({ expr: `named && named[datum.key] ? named[datum.key].${field} : ${usual}` });
  const label = {
    mark: { type: "text", align: place("align", "'left'"), dx: place("dx", 0), dy: place("dy", 0), fontSize: 12, fill: "var(--ink)", aria: false, tooltip: null },
    encoding: { x, y, text: { condition: { test: "named && named[datum.key]", field: "graph", type: "nominal" }, value: "" } },
  };
  return {
    width: "container", height, autosize: { type: "fit-x", contains: "padding" }, config: CONFIG, description,
    data: { values: points },
    params: [{ name: "lit", value: null }, { name: "named", value: null }],
    layer: small ? [marks] : [marks, label],
  };
}

function spectrumSpec(shown, top, color, description) {
  const values = shown.heights.map((height, k) => ({ low: shown.edges[k], high: shown.edges[k + 1], height }));
  return {
    width: "container", height: 150, autosize: { type: "fit-x", contains: "padding" }, config: CONFIG, description,
    data: { values },
    mark: { type: "bar", color, aria: false },
    encoding: {
      x: { field: "low", type: "quantitative", bin: "binned", title: "eigenvalue", scale: { domain: [-1, 1] }, axis: { values: [-1, -0.5, 0, 0.5, 1], grid: false, format: "~g" } },
      x2: { field: "high" },
      y: { field: "height", type: "quantitative", title: "energy (root scale)", scale: { domain: [0, top], type: "sqrt" }, axis: { tickCount: 4, format: "~g" } },
      tooltip: [{ field: "low", title: "from", format: ".2f" }, { field: "high", title: "to", format: ".2f" }, { field: "height", title: "energy", format: ".3~g" }],
    },
  };
}

// Offsets of the labels of some points, above or below them and apart from each other.
function placed(view, points, chosen) {
  const boxes = [];
  const found = {};
  for (const point of points.filter((one) => chosen.has(one.name))) {
    const [px, py] = [view.scale("x")(point.x), view.scale("y")(point.y)];
    const align = px > 0.6 * view.width() ? "right" : "left";
    const wide = 7 * point.graph.length + 8;
    const left = align === "left" ? px : px - wide;
    const isFree = (dy) => boxes.every((box) => box.left + box.wide < left || left + wide < box.left || Math.abs(box.y - py - dy) > 14);
    const dy = [-8, 12, -22, 26, -36, 40, -50, 54].find(isFree) ?? -8;
    boxes.push({ left, wide, y: py + dy });
    found[point.key] = { align, dx: align === "left" ? 8 : -8, dy };
  }
  return found;
}
