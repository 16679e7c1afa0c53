/* The estimate of energy, computed again with the figures that are typed in. */

function joules(picojoules) {
  const units = [[1e12, "J"], [1e9, "mJ"], [1e6, "µJ"], [1e3, "nJ"]];
  const [size, unit] = units.find(([size]) => picojoules >= size) ?? [1, "pJ"];
  return `${(picojoules / size).toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
}

function energy() {
  const table = document.getElementById("energy-table");
  if (!table) return;
  const rows = [...table.querySelectorAll("tr[data-count]")];
  const compute = () => {
    const totals = [];
    const parts = rows.map((row) => {
      const each = Number(row.querySelector("input").value);
      return row.dataset.count.split(" ").map((count, i) => {
        const spent = Number.isFinite(each) && each >= 0 ? each * Number(count) : 0;
        totals[i] = (totals[i] ?? 0) + spent;
        return spent;
      });
    });
    rows.forEach((row, r) => {
      row.querySelectorAll("output").forEach((cell, i) => (cell.textContent = joules(parts[r][i])));
    });
    totals.forEach((total, i) => {
      document.querySelectorAll(`[data-total="${i}"]`).forEach((cell) => (cell.textContent = joules(total)));
    });
    bars(rows, parts, Math.max(...totals, 1e-9));
  };
  table.addEventListener("input", compute);
  document.getElementById("energy-reset").addEventListener("click", () => {
    for (const input of table.querySelectorAll("input")) input.value = input.defaultValue;
    compute();
  });
  compute();
}

function bars(rows, parts, most) {
  document.querySelectorAll(".energy-bar").forEach((bar, i) => {
    bar.replaceChildren(...rows.map((row, r) => {
      const part = make("span", { class: row.dataset.class, title: `${row.dataset.name}: ${joules(parts[r][i])}` });
      part.style.width = `${(100 * parts[r][i]) / most}%`;
      return part;
    }));
  });
}
