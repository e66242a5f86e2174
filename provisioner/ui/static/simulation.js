// The page of a simulation: charts of its runs, and tables. Everything that users wrote is text; no HTML is made of it.
"use strict";
(() => {
  const { html, render, useEffect, useRef } = htmPreact;
  const DASHES = [[], [8, 4], [2, 3], [12, 4, 2, 4]];
  const HEIGHT = 230;
  const page = JSON.parse(document.getElementById("data").textContent);
  const hours = page.at.map((at) => at / 3600);
  const number = (one) => one.toLocaleString("en", { maximumFractionDigits: 2 });

  // What is drawn: [the field of a run, heading, unit before the numbers]
  const CHARTS = [["usd", `Price in ${page.currency} per hour`], ["nodes", "Nodes"], ["waiting", "Pods that wait for a node"]];

  function Chart({ what, title }) {
    const box = useRef(null), runs = page.runs;
    useEffect(() => {
      let made = null;
      const width = () => box.current.clientWidth || 600;
      const draw = () => {
        if (made) made.destroy();
        const css = getComputedStyle(document.documentElement), of = (name) => css.getPropertyValue(name).trim();
        const axis = { stroke: of("--fore"), grid: { stroke: of("--line"), width: 1 }, ticks: { stroke: of("--line") }, font: "12px system-ui, sans-serif" };
        made = new uPlot({
          width: width(), height: HEIGHT, scales: { x: { time: false }, y: { range: (u, low, high) => [0, (high || 1) * 1.1] } },
          axes: [{ ...axis, values: (u, found) => found.map((one) => `${number(one)} h`) }, { ...axis, size: 64, values: (u, found) => found.map(number) }],
          series: [{ label: "Hour", value: (u, at) => (at == null ? "" : number(at)) }, ...runs.map((run, n) => ({
            label: run.name, stroke: of(`--p${n % 8}`), width: 2, dash: DASHES[n % DASHES.length], value: (u, one) => (one == null ? "" : number(one)),
          }))],
        }, [hours, ...runs.map((run) => run[what])], box.current);
      };
      draw();
      const dark = matchMedia("(prefers-color-scheme: dark)"), resize = () => made.setSize({ width: width(), height: HEIGHT });
      addEventListener("resize", resize); dark.addEventListener("change", draw);
      return () => { removeEventListener("resize", resize); dark.removeEventListener("change", draw); made.destroy(); };
    }, []);
    const means = runs.map((run) => `${run.name} ${number(run[what].reduce((a, b) => a + b, 0) / run[what].length)}`);
    return html`<section aria-labelledby=${what}><h2 id=${what}>${title}</h2><div class="chart" role="img" aria-label="${title} over ${number(page.hours)} hours; means: ${means.join(", ")}" ref=${box}></div></section>`;
  }

  const Table = ({ table, n }) => html`<section aria-labelledby="table-${n}"><h2 id="table-${n}">${table.title}</h2><div class="scroll" tabindex="0" role="region" aria-label="Table: ${table.title}"><table>
    <thead><tr>${table.heads.map((one, at) => html`<th scope="col" class=${at ? "n" : ""}>${one}</th>`)}</tr></thead>
    <tbody>${table.rows.map(([name, ...cells]) => html`<tr><th scope="row">${name}</th>${cells.map((one) => html`<td class="n">${one}</td>`)}</tr>`)}</tbody></table></div></section>`;

  const App = () => html`<header><h1>Dovetail: ${page.title}</h1><div class="dim">${number(page.hours)} hours, catalogue ${page.catalogue}, from dovetail simulate</div>
      ${(page.notes || []).map((one) => html`<p class="note">${one}</p>`)}</header>
    <main>${page.tables.map((table, n) => html`<${Table} table=${table} n=${n} />`)}${CHARTS.map(([what, title]) => html`<${Chart} what=${what} title=${title} />`)}</main>`;

  const root = document.getElementById("app");
  root.textContent = "";
  document.title = `Dovetail: ${page.title}`;
  render(html`<${App} />`, root);
})();
