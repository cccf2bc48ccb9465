"use strict";
// Draws the graph of the rounds selected by the slider; "Play" steps through all of them, two per second.
// page.html#round=7 opens the page at round 7 or, if it is not shown, at the last one before it.
(() => {
  const { n, starts, labels, graphs, graph, marked, cells } = JSON.parse(document.getElementById("graphs").textContent);
  const [canvas, slider, play, now] = ["pairs", "slider", "play", "now"].map((id) => document.getElementById(id));
  const values = document.querySelectorAll("#values dd");
  const rows = document.querySelectorAll("#numbers-table tbody tr");
  const context = canvas.getContext("2d");
  const colors = { received: [8, 81, 156], first: [198, 219, 239], marked: [213, 94, 0], none: [255, 255, 255] };
  let timer = null;

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bit = (data, k) => (data[k >> 3] >> (7 - (k & 7))) & 1;
  const first = bytes(graphs[graph[0]]);

  function color(received, k) {
    if (bit(received, k)) return k % n >= n - marked ? colors.marked : colors.received;
    return bit(first, k) ? colors.first : colors.none;
  }

  function draw(place) {
    const received = bytes(graphs[graph[place]]);
    const image = context.createImageData(n, n);
    for (let k = 0; k < n * n; k++) image.data.set([...color(received, k), 255], 4 * k);
    context.putImageData(image, 0, 0);
    const round = `round${labels[place].includes(" ") ? "s" : ""} ${labels[place]}`;
    canvas.setAttribute("aria-label", `The nodes that each node receives from in ${round}`);
    if (!slider) return;
    now.textContent = round;
    slider.setAttribute("aria-valuetext", round);
    values.forEach((value) => { value.textContent = cells[place][value.dataset.k]; });
    rows.forEach((row, k) => row.classList.toggle("current", k === place));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }

  function step() {
    if (Number(slider.value) >= labels.length - 1) return stop();
    slider.value = Number(slider.value) + 1;
    draw(Number(slider.value));
  }

  if (!slider) return draw(0); // all rounds are equal
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (Number(slider.value) >= labels.length - 1) { slider.value = 0; draw(0); }
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    timer = setInterval(step, 500);
  });
  slider.addEventListener("input", () => { stop(); draw(Number(slider.value)); });

  const wish = location.hash.match(/^#round=(\d+)$/);
  if (wish) slider.value = Math.max(0, starts.findLastIndex((t) => t <= Number(wish[1])));
  draw(Number(slider.value));
})();
