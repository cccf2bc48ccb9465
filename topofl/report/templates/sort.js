"use strict";
// Sorts a table by the column whose button is pressed; missing values come last in both directions.
// page.html#sort=spectral%20gap opens the page sorted by that column, #sort=-spectral%20gap in descending order.
(() => {
  const place = (row, k) => row.cells[k].dataset;

  function order(a, b, k, sign) {
    const [x, y] = [place(a, k), place(b, k)];
    if (x.key === "" || y.key === "") return (x.key === "") - (y.key === "");
    if ("number" in x) return sign * (Number(x.key) - Number(y.key)) || 0;
    return sign * x.key.localeCompare(y.key, "en", { numeric: true });
  }

  function reorder(body, numbers) {
    const rows = new Map(Array.from(body.rows, (row) => [row.dataset.row, row]));
    body.append(...numbers.map((number) => rows.get(number)));
  }

  function sort(table, heading, descending) {
    const k = heading.cellIndex;
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort((a, b) => order(a, b, k, descending ? -1 : 1) || a.dataset.row - b.dataset.row);
    const numbers = rows.map((row) => row.dataset.row);
    reorder(table.tBodies[0], numbers);
    if (table.id === "numbers-table") {
      document.querySelectorAll(".printed tbody").forEach((body) => reorder(body, numbers));
    }
    for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    const direction = descending ? "descending" : "ascending";
    heading.setAttribute("aria-sort", direction);
    document.getElementById("announcement").textContent = `Sorted by ${heading.dataset.column}, ${direction}`;
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.querySelectorAll("th[aria-sort]")) {
      heading.querySelector("button").addEventListener("click", () => {
        sort(table, heading, heading.getAttribute("aria-sort") === "ascending");
      });
    }
  }

  const wish = decodeURIComponent(location.hash).match(/^#sort=(-?)(.*)$/);
  for (const table of wish ? document.querySelectorAll("#glance-table, #numbers-table") : []) {
    const heading = Array.from(table.querySelectorAll("th[aria-sort]")).find((th) => th.dataset.column === wish[2]);
    if (!heading) continue;
    sort(table, heading, wish[1] === "-");
    if (table.closest("details")) table.closest("details").open = true;
  }
})();
