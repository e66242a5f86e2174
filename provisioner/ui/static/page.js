// The page: shows what the command sends, changes nothing. Everything that users wrote is text; no HTML is made of it.
"use strict";
(() => {
  const { html, render, useState, useEffect, useRef, useMemo } = htmPreact;

  const DETAILED = 200;       // nodes; more are shown by NodePool and type
  const NODES_A_PAGE = 60;
  const ROWS_A_PAGE = 100;
  const DECISIONS_A_PAGE = 25;
  const CELLS = 600;          // of a strip
  const BLOCKS = 40;          // pods of one class that are drawn one by one
  const MOMENTS = 2000;       // prices that are kept since the page was opened
  const WIDTH = 1000;         // of a drawing, in its own units

  // ---------------------------------------------------------------- words

  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const cores = (millis) => (millis / 1000).toLocaleString("en", { maximumFractionDigits: millis < 10000 ? 2 : 0 });
  const gib = (bytes) => `${(bytes / 2 ** 30).toLocaleString("en", { maximumFractionDigits: bytes < 2 ** 34 ? 1 : 0 })} GiB`;
  const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–");
  const money = (page, usd, digits = 4) => (usd === undefined || usd === null ? "unknown" : `${page.currency || "$"}${usd.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`);
  const nameOf = (node) => node.name || node.claim || "(no Node yet)";
  const time = (at) => { const date = new Date((at || 0) * 1000); return at && !isNaN(date) ? date.toISOString().replace("T", " ").slice(0, 19) + "Z" : ""; };
  const age = (from, to) => {
    if (!from) return "";
    const s = Math.max(0, to - from);
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  };
  const lasted = (seconds) => age(1, 1 + Math.round(seconds));
  const orNothing = (page, usd) => (usd === undefined || usd === null ? "" : money(page, usd, 3));
  const ofNodes = (page, text) => (page.sums ? text : "You may not list nodes.");
  const podName = (of, name) => (name.startsWith("/") ? name.slice(1) : `${of.prefix || ""}${name}`);
  const titleOf = (of) => `${of.kind} ${of.namespace}/${of.name}`;
  const STATES = {
    planned: "planned", launching: "launching", starting: "starting", ready: "ready", "not-ready": "not ready", rebooting: "rebooting",
    awaits: "waits for confirmation", disrupted: "being disrupted", draining: "draining", ending: "terminating", unmanaged: "not managed",
  };
  const stateOf = (node) => STATES[node.state] || String(node.state);

  // ---------------------------------------------------------------- sums of a node

  const none = { pods: 0, cpu: 0, memory: 0 };
  const apart = (some) => ({ ...none, ...some });
  const total = (page, rows) => {
    const sum = { ...none };
    for (const [index, count] of rows || []) {
      const of = page.classes[index] || {};
      sum.pods += count; sum.cpu += (of.cpu || 0) * count; sum.memory += (of.memory || 0) * count;
    }
    return sum;
  };
  const plus = (...parts) => parts.reduce((a, b) => ({ pods: a.pods + (b.pods || 0), cpu: a.cpu + (b.cpu || 0), memory: a.memory + (b.memory || 0) }), none);

  // Sums are asked for again and again of nodes that stay the same object.
  const known = new WeakMap();
  const sumsOf = (page, node) => {
    let found = known.get(node);
    if (!found) {
      const daemons = apart(node.daemons), hidden = apart(node.hidden), rest = apart(node.rest);
      const pods = plus(total(page, node.pods), hidden, rest);
      const planned = plus(total(page, node.planned), apart(node.plannedHidden));
      const [cpu, memory] = node.system || [0, 0];
      found = {
        daemons, hidden, rest, pods, planned, system: { pods: 0, cpu, memory },
        room: { cpu: Math.max(0, (node.cpu || 0) - cpu), memory: Math.max(0, (node.memory || 0) - memory) },
        used: plus(pods, daemons),
      };
      known.set(node, found);
    }
    return found;
  };
  const share = (page, node) => {
    const s = sumsOf(page, node);
    return Math.max(s.room.cpu ? s.used.cpu / s.room.cpu : 0, s.room.memory ? s.used.memory / s.room.memory : 0);
  };

  const colour = (of) => {
    let hash = 0;
    for (const one of `${of.namespace}/${of.name}`) hash = (hash * 31 + one.codePointAt(0)) >>> 0;
    return hash % 8;
  };

  // ---------------------------------------------------------------- drawings

  // One bar: [class of the fill, amount, hatched, how many blocks, tip]
  const parts = (page, node, what) => {
    const s = sumsOf(page, node), found = [];
    found.push(["f-system", s.system[what], false, 1, "reserved for the system"]);
    found.push(["f-daemon", s.daemons[what], false, 1, "DaemonSets"]);
    const pods = (rows, hatched) => {
      for (const [index, count] of rows || []) {
        const of = page.classes[index];
        if (of) found.push([`f-${colour(of)}`, (of[what] || 0) * count, hatched, Math.min(count, BLOCKS), `${count} × ${titleOf(of)}${hatched ? ", planned" : ""}`]);
      }
    };
    pods(node.pods, false);
    if (s.rest.pods) found.push(["f-hidden", s.rest[what], false, Math.min(s.rest.pods, BLOCKS), plural(s.rest.pods, "other pod")]);
    if (s.hidden.pods) found.push(["f-hidden", s.hidden[what], false, Math.min(s.hidden.pods, BLOCKS), `${plural(s.hidden.pods, "pod")} that you may not list`]);
    pods(node.planned, true);
    const away = apart(node.plannedHidden);
    if (away.pods) found.push(["f-hidden", away[what], true, Math.min(away.pods, BLOCKS), `${plural(away.pods, "planned pod")} that you may not list`]);
    return found;
  };

  function Bar({ page, node, what, most, y, height }) {
    const whole = node[what] || 0, scale = most > 0 ? WIDTH / most : 0, made = [];
    let x = 0;
    for (const [fill, amount, hatched, blocks, tip] of parts(page, node, what)) {
      const width = Math.max(0, amount) * scale;
      if (width < 0.5) { x += width; continue; }
      for (let n = 0; n < blocks; n++) {
        const at = { x: x + (width * n) / blocks, y, width: width / blocks, height };
        made.push(html`<rect class="gap ${fill}" ...${at}><title>${tip}</title></rect>`);
        if (hatched) made.push(html`<rect class="gap" fill="url(#hatch)" ...${at} />`);
      }
      x += width;
    }
    const width = Math.max(1, whole * scale);
    return html`<g><rect class="f-free" x="0" y=${y} width=${width} height=${height} />${made}<rect class="outline" x="0" y=${y} width=${width} height=${height} /></g>`;
  }

  const Bars = ({ page, node, most }) => html`
    <svg class="bars" viewBox="0 0 ${WIDTH} 36" preserveAspectRatio="none" aria-hidden="true">
      <${Bar} page=${page} node=${node} what="cpu" most=${most.cpu} y=${1} height=${14} />
      <${Bar} page=${page} node=${node} what="memory" most=${most.memory} y=${17} height=${14} />
      ${most.usd > 0 && node.usd ? html`<rect class="f-price" x="0" y="33" width=${Math.max(1, (node.usd / most.usd) * WIDTH)} height="3"><title>price</title></rect>` : null}
    </svg>`;

  const Hatch = () => html`<svg width="0" height="0" aria-hidden="true"><defs>
    <pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatching" x1="0" y1="0" x2="0" y2="8" /></pattern>
  </defs></svg>`;

  const mostOf = (nodes) => {
    const most = { cpu: 0, memory: 0, usd: 0 };
    for (const one of nodes) {
      most.cpu = Math.max(most.cpu, one.cpu || 0); most.memory = Math.max(most.memory, one.memory || 0); most.usd = Math.max(most.usd, one.usd || 0);
    }
    return most;
  };

  const Key = () => html`<ul class="key">
    ${[["f-system", "reserved for the system"], ["f-daemon", "DaemonSets"], ["f-0", "pods, a block each, a color for each workload"], ["f-hidden", "pods that are only counted"], ["hatch", "planned, not bound yet"], ["f-free", "not requested"]].map(([fill, text]) =>
      html`<li><svg viewBox="0 0 14 14" aria-hidden="true"><rect width="14" height="14" class=${fill === "hatch" ? "f-free" : fill} />${fill === "hatch" ? html`<rect width="14" height="14" fill="url(#hatch)" />` : null}</svg>${text}</li>`)}
    <li>Upper bar: CPU. Lower bar: memory. Thin bar: price. All to scale.</li>
  </ul>`;

  // ---------------------------------------------------------------- nodes

  const spoken = (page, node) => {
    const s = sumsOf(page, node);
    return [
      nameOf(node), stateOf(node), node.pool && `NodePool ${node.pool}`, node.type, node.zone, node.capacityType,
      node.usd ? `${money(page, node.usd)} per hour` : "price unknown", `CPU ${percent(s.used.cpu, s.room.cpu)} requested`,
      `memory ${percent(s.used.memory, s.room.memory)} requested`, plural(s.pods.pods, "pod"), s.planned.pods && plural(s.planned.pods, "planned pod"),
      node.interrupted && `interrupted: ${node.interrupted}`, node.text,
    ].filter(Boolean).join(", ");
  };

  function NodeCard({ page, node, most, open }) {
    return html`<li><button class="node" onClick=${() => open(node)} aria-label=${spoken(page, node)}>
      <span class="head"><strong>${nameOf(node)}</strong> <span class="state s-${STATES[node.state] ? node.state : "odd"}">${stateOf(node)}${node.interrupted ? ", interrupted" : ""}</span></span>
      <span class="head dim"><span>${[node.pool, node.type, node.zone, node.capacityType].filter(Boolean).join(" · ")}</span> <span>${[`${money(page, node.usd)}/h`, age(node.created, page.at)].filter(Boolean).join(" · ")}</span></span>
      ${node.text || node.by ? html`<span class="head dim">${node.text || ""}${node.by ? ` → ${node.by.join(", ")}` : ""}</span>` : null}
      <${Bars} page=${page} node=${node} most=${most} />
    </button></li>`;
  }

  const groupsOf = (page, nodes) => {
    const found = new Map();
    for (const node of nodes) {
      const key = JSON.stringify([node.pool || "", node.type || "", node.capacityType || ""]);
      let one = found.get(key);
      if (!one) {
        found.set(key, (one = { key, pool: node.pool, type: node.type, capacityType: node.capacityType, nodes: [], usd: 0, ready: 0 }));
      }
      one.nodes.push(node); one.usd += node.usd || 0; one.ready += node.state === "ready" ? 1 : 0;
    }
    return [...found.values()].sort((a, b) => b.usd - a.usd || b.nodes.length - a.nodes.length || (a.key < b.key ? -1 : 1));
  };

  // One cell a node, the fuller the higher; of many nodes each cell is the mean of some.
  function Strip({ page, nodes }) {
    const each = Math.ceil(nodes.length / CELLS), shares = nodes.map((one) => share(page, one)).sort((a, b) => b - a), cells = [];
    for (let n = 0; n < shares.length; n += each) {
      const some = shares.slice(n, n + each);
      cells.push(Math.min(1, some.reduce((a, b) => a + b, 0) / some.length));
    }
    const columns = Math.min(cells.length, 100), size = 10, tall = 15, rows = Math.ceil(cells.length / columns) || 1;
    return html`<svg class="strip" viewBox="0 0 1000 ${rows * (tall + 3)}" aria-hidden="true">${cells.map((one, n) => {
      const x = (n % 100) * size, y = Math.floor(n / 100) * (tall + 3) + 1;
      return html`<g><rect class="f-0" x=${x + 1} y=${y + tall * (1 - one)} width=${size - 3} height=${tall * one} /><rect class="cell" x=${x + 1} y=${y} width=${size - 3} height=${tall} /></g>`;
    })}</svg>`;
  }

  function GroupCard({ page, group, choose }) {
    const s = group.nodes.reduce((a, one) => { const b = sumsOf(page, one); a.cpu += b.used.cpu; a.memory += b.used.memory; a.roomCpu += b.room.cpu; a.roomMemory += b.room.memory; a.pods += b.pods.pods; return a; }, { cpu: 0, memory: 0, roomCpu: 0, roomMemory: 0, pods: 0 });
    const name = [group.pool || "(no NodePool)", group.type, group.capacityType].filter(Boolean).join(" · ");
    const words = `${plural(group.nodes.length, "node")}${group.ready < group.nodes.length ? `, ${group.nodes.length - group.ready} not ready` : ""}, ${plural(s.pods, "pod")}, ${money(page, group.usd, 2)}/h, CPU ${percent(s.cpu, s.roomCpu)}, memory ${percent(s.memory, s.roomMemory)} requested`;
    return html`<li><button class="node" onClick=${() => choose(group.key)} aria-label="${name}: ${words}. Show its nodes">
      <span class="head"><strong>${name}</strong> <span class="dim">${words}</span></span>
      <${Strip} page=${page} nodes=${group.nodes} />
    </button></li>`;
  }

  function Pager({ at, count, size, go, what }) {
    if (count <= size) return null;
    const last = Math.ceil(count / size) - 1;
    return html`<div class="tools" role="group" aria-label="Pages of ${what}">
      <button disabled=${at <= 0} onClick=${() => go(at - 1)}>Previous</button>
      <span>${(at * size + 1).toLocaleString("en")} to ${Math.min(count, (at + 1) * size).toLocaleString("en")} of ${count.toLocaleString("en")} ${what}</span>
      <button disabled=${at >= last} onClick=${() => go(at + 1)}>Next</button>
    </div>`;
  }

  function NodeTable({ page, nodes, open }) {
    return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of nodes"><table>
      <caption><span>${plural(nodes.length, "node")}</span></caption>
      <thead><tr>${["Node", "State", "NodePool", "Type", "Zone", "Capacity type"].map((one) => html`<th scope="col">${one}</th>`)}
        ${["Per hour", "Age", "Pods", "Planned", "CPU requested", "Memory requested"].map((one) => html`<th scope="col" class="n">${one}</th>`)}</tr></thead>
      <tbody>${nodes.map((node) => {
        const s = sumsOf(page, node);
        return html`<tr key=${node.claim || node.name}><th scope="row"><button onClick=${() => open(node)}>${nameOf(node)}</button></th>
          <td class="word">${stateOf(node)}${node.interrupted ? `, interrupted (${node.interrupted})` : ""}${node.text ? `: ${node.text}` : ""}</td>${[node.pool, node.type, node.zone, node.capacityType].map((one) => html`<td class="short">${one}</td>`)}
          <td class="n">${money(page, node.usd)}</td><td class="n">${age(node.created, page.at)}</td><td class="n">${s.pods.pods}</td><td class="n">${s.planned.pods}</td>
          <td class="n">${cores(s.used.cpu)} of ${cores(s.room.cpu)}</td><td class="n">${gib(s.used.memory)} of ${gib(s.room.memory)}</td></tr>`;
      })}</tbody></table></div>`;
  }

  const matches = (page, node, words) => words.every((word) =>
    [node.name, node.claim, node.pool, node.type, node.zone, node.capacityType, node.state, node.interrupted].some((one) => one && one.toLowerCase().includes(word))
    || [...(node.pods || []), ...(node.planned || [])].some(([index]) => page.classes[index] && titleOf(page.classes[index]).toLowerCase().includes(word)));

  function Nodes({ page, open }) {
    const [text, setText] = useState(""), [table, setTable] = useState(false), [group, setGroup] = useState(""), [at, setAt] = useState(0);
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = page.nodes || [];
    const found = useMemo(() => (words.length ? all.filter((one) => matches(page, one, words)) : all), [page, text]);
    const groups = useMemo(() => groupsOf(page, found), [page, found]);
    const chosen = groups.find((one) => one.key === group);
    const shown = chosen ? chosen.nodes : found;
    const grouped = !table && !chosen && found.length > DETAILED;
    const size = table ? ROWS_A_PAGE : NODES_A_PAGE, here = Math.min(at, Math.max(0, Math.ceil(shown.length / size) - 1));
    const some = shown.slice(here * size, (here + 1) * size), most = mostOf(found);
    return html`<section aria-labelledby="nodes"><h2 id="nodes">Nodes</h2>
      ${page.sums ? null : html`<p class="note">You may not list nodes.</p>`}
      <div class="tools">
        <label>Filter <input type="search" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} placeholder="pool, type, zone, state, workload" /></label>
        <label><input type="checkbox" checked=${table} onChange=${(event) => { setTable(event.target.checked); setAt(0); }} /> Show as a table</label>
        ${chosen ? html`<button onClick=${() => { setGroup(""); setAt(0); }}>← All groups</button><span>${[chosen.pool, chosen.type, chosen.capacityType].filter(Boolean).join(" · ")}</span>` : null}
        <span role="status" class="dim">${words.length ? `${plural(found.length, "node")} of ${all.length.toLocaleString("en")}` : ""}</span>
      </div>
      ${grouped
        ? html`<p class="dim">${plural(found.length, "node")} by NodePool, type and capacity type. Each cell is ${found.length > CELLS ? "a node, or the mean of some" : "a node"}, filled as far as its pods request it.</p>
          <ul class="groups">${groups.slice(0, ROWS_A_PAGE).map((one) => html`<${GroupCard} key=${one.key} page=${page} group=${one} choose=${(key) => { setGroup(key); setAt(0); }} />`)}</ul>
          ${groups.length > ROWS_A_PAGE ? html`<p class="dim">and ${groups.length - ROWS_A_PAGE} more groups; use the filter or the table</p>` : null}`
        : html`${table ? html`<${NodeTable} page=${page} nodes=${some} open=${open} />` : html`<${Key} /><ul class="nodes">${some.map((node) => html`<${NodeCard} key=${node.claim || node.name || node.created} page=${page} node=${node} most=${most} open=${open} />`)}</ul>`}
          <${Pager} at=${here} count=${shown.length} size=${size} go=${setAt} what="nodes" />`}
    </section>`;
  }

  function NodeDialog({ page, node, close, why }) {
    const box = useRef(null), [answer, setAnswer] = useState("");
    useEffect(() => { const one = box.current; if (one && !one.open) one.showModal(); return () => one && one.open && one.close(); }, []);
    const s = sumsOf(page, node), rows = [...(node.pods || []).map((row) => [row, "runs"]), ...(node.planned || []).map((row) => [row, "planned"])];
    const ask = () => { setAnswer("Asking…"); why(`node/${node.name || node.claim}`).then(setAnswer); };
    const counted = [[s.daemons, "DaemonSets and static pods"], [s.hidden, "pods that you may not list"], [s.rest, "other pods"], [apart(node.plannedHidden), "planned pods that are only counted"]].filter(([one]) => one.pods || one.cpu || one.memory);
    return html`<dialog ref=${box} aria-labelledby="which" onClose=${close}>
      <div class="head"><h2 id="which">${nameOf(node)}</h2><button onClick=${close}>Close</button></div>
      <p>${spoken(page, node)}</p>
      <p class="dim">${[node.claim && `NodeClaim ${node.claim}`, node.created && `created ${time(node.created)}`, `${cores(node.cpu || 0)} CPU`, `${gib(node.memory || 0)} of memory`, node.slots && `at most ${node.slots} pods`].filter(Boolean).join(", ")}</p>
      ${node.by ? html`<p>Replaced by ${node.by.join(", ")}</p>` : null}
      <${Bars} page=${page} node=${node} most=${mostOf([node])} />
      ${why && (node.name || node.claim) ? html`<p><button onClick=${ask}>Why does this node stay?</button></p><div role="status">${answer ? html`<pre>${answer}</pre>` : null}</div>` : null}
      <div class="scroll" tabindex="0" role="region" aria-label="Pods of the node"><table><caption><span>Pods</span></caption>
        <thead><tr><th scope="col">Workload</th><th scope="col">State</th><th scope="col" class="n">Pods</th><th scope="col" class="n">CPU each</th><th scope="col" class="n">Memory each</th><th scope="col">Names</th></tr></thead>
        <tbody>${rows.map(([[index, count, ...names], state]) => { const of = page.classes[index] || {}; return html`<tr><th scope="row">${titleOf(of)}</th><td>${state}</td><td class="n">${count}</td><td class="n">${cores(of.cpu || 0)}</td><td class="n">${gib(of.memory || 0)}</td><td class="text">${names.map((one) => podName(of, one)).join(", ")}${of.more ? ` (${of.more})` : ""}</td></tr>`; })}
        ${counted.map(([one, text]) => html`<tr><th scope="row">${text}</th><td></td><td class="n">${one.pods || ""}</td><td class="n">${cores(one.cpu)} together</td><td class="n">${gib(one.memory)} together</td><td></td></tr>`)}</tbody></table></div>
    </dialog>`;
  }

  // ---------------------------------------------------------------- the other sections

  const TEXTS = ["Why", "Decision", "Meaning", "Which", "Others blocked"];
  const Table = ({ caption, heads, rows, none: text }) => (rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption><span>${caption}</span></caption>
    <thead><tr>${heads.map((one) => html`<th scope="col" class=${one.endsWith("#") ? "n" : ""}>${one.replace("#", "")}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, n) => html`<td class=${heads[n].endsWith("#") ? "n" : TEXTS.includes(heads[n]) ? "text" : "word"}>${cell}</td>`)}</tr>`)}</tbody></table></div>` : html`<p class="dim">${text}</p>`);

  const Waiting = ({ page }) => html`<section aria-labelledby="waiting"><h2 id="waiting">Waiting pods</h2>
    <${Table} caption="Pods without a node and without a plan" none="No pod waits for a node." heads=${["Workload", "Pods#", "For#", "CPU#", "Memory#", "Why", "Names"]}
      rows=${(page.waiting || []).map((one) => { const of = page.classes[one.of] || {}; const names = one.names || []; return [titleOf(of), one.pods, age(one.since, page.at), cores(of.cpu || 0), gib(of.memory || 0), one.text, names.join(", ") + (one.pods > names.length ? " …" : "")]; })} />
    ${page.hiddenWaiting ? html`<p class="dim">${plural(page.hiddenWaiting, "other pod")} that you may not list, or for which the page has no room.</p>` : null}
  </section>`;

  const Pools = ({ page }) => html`<section aria-labelledby="pools"><h2 id="pools">NodePools</h2>
    <${Table} caption="NodePools and what their limits leave" none="No NodePool." heads=${["NodePool", "Nodes#", "Per hour#", "Weight#", "Limits", "Launches"]}
      rows=${(page.pools || []).map((one) => [one.name, one.replicas !== undefined ? `${one.nodes || 0} of ${one.replicas}` : one.nodes || 0, one.usd === undefined ? "" : money(page, one.usd), one.weight || "",
        one.limits ? html`<ul class="key">${one.limits.map(([name, used, limit, part]) => html`<li><meter min="0" max="1" high="0.9" value=${Math.max(0, Math.min(1, part))} aria-label="${name} used"></meter> ${name} ${used} of ${limit}</li>`)}</ul>` : "none",
        one.ready === false ? `no nodes now${one.text ? `: ${one.text}` : ""}` : one.text || "nodes for pods that need them"])} /></section>`;

  const Short = ({ page }) => {
    const past = page.history;
    return html`<section aria-labelledby="short"><h2 id="short">Interruptions and shortages</h2>
    <${Table} caption="Nodes that the cloud takes back" none=${ofNodes(page, "No node is being taken back.")} heads=${["Zone", "Type", "Why", "Nodes#"]} rows=${(page.interruptions || []).map((one) => [one.zone, one.type, one.reason, one.nodes])} />
    <${Table} caption="Instance types that cannot be launched now" none="All known instance types can be launched." heads=${["Zone", "Capacity type", "Types#", "Of#", "Which"]}
      rows=${(page.shortages || []).map((one) => [one.zone, one.capacityType, one.count, one.of, (one.types || []).join(", ") + (one.count > (one.types || []).length ? " …" : "")])} />
    ${past ? html`<h3>Since ${time(past.since)}</h3>
      <${Table} caption="Interruptions by zone and type" none=${ofNodes(page, "No node was interrupted.")} heads=${["Zone", "Type", "Capacity type", "Reason", "Nodes#", "Last#"]} rows=${(past.interruptions || []).map((one) => [one.zone, one.type, one.capacityType, one.reason, one.count, time(one.last)])} />
      <${Table} caption="Shortages by zone and type" none="All known offerings could be launched." heads=${["Zone", "Type", "Capacity type", "State", "Times#", "For#"]}
        rows=${(past.shortages || []).map((one) => [one.zone, one.type, one.capacityType, one.lasts ? `since ${time(one.last)}` : `over since ${time(one.last)}`, one.times, lasted(one.seconds + (one.lasts ? Math.max(0, page.at - one.last) : 0))])} />` : null}</section>`;
  };

  const hour = (at) => { const text = time(at); return text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, text.slice(17, 19) === "00" ? 16 : 19); };
  const SERIES = [["now", "--p0", []], ["by the greedy rule", "--p5", [6, 4]], ["proved bound", "--p2", [2, 3]]];

  function Chart({ page, moments }) {
    const box = useRef(null), chart = useRef(null), marks = useRef([]);
    const past = page.history && page.history.moments, lines = past && past.length > 1 ? past : moments;
    const enough = lines.length > 1, priced = lines.some((one) => one.bound !== undefined);
    const data = [lines.map((one) => one.at), lines.map((one) => one.usd), ...(priced ? [lines.map((one) => one.greedy ?? null), lines.map((one) => one.bound ?? null)] : [])];
    marks.current = ((page.history && page.history.decisions) || []).map((one) => one.at);
    useEffect(() => {
      if (!enough || !box.current) return undefined;
      let made = null;
      const draw = () => {
        if (made) made.destroy();
        const css = getComputedStyle(document.documentElement), fore = css.getPropertyValue("--fore").trim(), line = css.getPropertyValue("--line").trim();
        const axis = { stroke: fore, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: "12px system-ui, sans-serif" };
        const ticks = (u) => { // a decision each
          const { left, top, width, height } = u.bbox, pen = u.ctx;
          pen.save(); pen.setLineDash([]); pen.strokeStyle = fore; pen.globalAlpha = 0.6; pen.lineWidth = devicePixelRatio; pen.beginPath();
          for (const at of marks.current) {
            const x = Math.round(u.valToPos(at, "x", true));
            if (x >= left && x <= left + width) { pen.moveTo(x, top + height); pen.lineTo(x, top + height - 8 * devicePixelRatio); }
          }
          pen.stroke(); pen.restore();
        };
        made = new uPlot({
          width: box.current.clientWidth || 600, height: 230, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
          axes: [{ ...axis, values: (u, found) => found.map(hour) }, { ...axis, size: 64, values: (u, found) => found.map((one) => `${page.currency || "$"}${one.toLocaleString("en")}`) }],
          scales: { y: { range: (u, low, high) => [0, (high || 1) * 1.1] } }, hooks: { draw: [ticks] },
          series: [{ label: "Time", value: (u, at) => (at ? time(at) : "") }, ...SERIES.slice(0, data.length - 1).map(([label, name, dash]) => ({ label: `${page.currency || "$"}/h ${label}`, stroke: css.getPropertyValue(name).trim(), width: 2, dash, value: (u, usd) => (usd == null ? "" : usd.toFixed(2)) }))],
        }, data, box.current);
        chart.current = made;
      };
      draw();
      const dark = matchMedia("(prefers-color-scheme: dark)");
      const resize = () => box.current && made.setSize({ width: box.current.clientWidth || 600, height: 230 });
      addEventListener("resize", resize); dark.addEventListener("change", draw);
      return () => { removeEventListener("resize", resize); dark.removeEventListener("change", draw); made.destroy(); chart.current = null; };
    }, [enough, data.length]);
    useEffect(() => { if (chart.current) chart.current.setData(data); });
    if (!enough) return null;
    const first = lines[0], last = lines[lines.length - 1];
    return html`<div class="chart" role="img" aria-label="Price per hour from ${time(first.at)} to ${time(last.at)}: from ${money(page, first.usd, 2)} to ${money(page, last.usd, 2)}${priced && last.bound !== undefined ? `; by the greedy rule ${money(page, last.greedy, 2)}, proved bound ${money(page, last.bound, 2)}` : ""}" ref=${box}></div>`;
  }

  const Bound = ({ page, bound }) => {
    const usd = (amount) => money(page, amount, 2), causes = bound.causes || [];
    const rows = [["now", bound.usd, "nodes of dynamic NodePools as they are"], ["by the greedy rule", bound.greedy, "new nodes for the same pods, packed first fit"], ["proved bound", bound.bound, "no new nodes for these pods cost less"]];
    return html`<${Table} caption="Price per hour, as of ${time(bound.at)} (${age(bound.at, page.at)} ago), of ${plural(bound.pods || 0, "pod")}${bound.unplaced ? `; ${bound.unplaced.toLocaleString("en")} more are left out` : ""}" none="" heads=${["What", "Per hour#", "Of the price now#", "Meaning"]}
        rows=${rows.filter((row) => row[1] !== undefined && row[1] !== null).map(([what, amount, text]) => [what, usd(amount), bound.usd ? percent(amount, bound.usd) : "", text])} />
      ${bound.keptAt ? html`<h3>What keeps the fleet from the bound</h3>
        <${Table} caption="As of ${time(bound.keptAt)} (${age(bound.keptAt, page.at)} ago): how far the bound would fall" none="" heads=${["Lifted", "Nodes#", "Bound falls by#", "Meaning"]}
          rows=${[...causes.map((one) => [`${one.cause} alone`, one.nodes, usd(one.usd), one.meaning]), ["all together", "", usd(bound.together || 0), "none of these holds any more"], ["rest", "", usd(bound.rest || 0), "what could be saved although all of them hold, and what is lost because nodes have sizes"]]} />
        <p class="dim">The parts do not add up to "all together": a node that is held by two causes stays when one of them is lifted.</p>` : null}`;
  };

  const Cost = ({ page, moments }) => {
    const past = page.history;
    return html`<section aria-labelledby="cost"><h2 id="cost">Price over time</h2>
      <p class="dim">${past ? `The history begins ${time(past.since)} (${age(past.since, page.at)} ago).${past.dropped ? ` ${plural(past.dropped, "change")} came too fast to be recorded.` : ""}${past.moments ? " A tick at the bottom is a decision." : ""}` : `${page.noHistory || "No history."}${moments.length > 1 ? " The chart begins when this page was opened." : ""}`}</p>
      <${Chart} page=${page} moments=${moments} />
      ${past && past.bound ? html`<${Bound} page=${page} bound=${past.bound} />` : past && past.moments ? html`<p class="dim">The price by the greedy rule and the proved bound are not known: only the provisioner that leads computes them, some minutes after its start.</p>` : null}</section>`;
  };

  function Decisions({ page }) {
    const past = page.history, [at, setAt] = useState(0);
    const all = useMemo(() => [...((past && past.decisions) || [])].reverse(), [past]);
    const here = Math.min(at, Math.max(0, Math.ceil(all.length / DECISIONS_A_PAGE) - 1));
    return html`<section aria-labelledby="decisions"><h2 id="decisions">Decisions</h2>
    <${Table} caption="Disruption under way" none=${ofNodes(page, "No node is being disrupted.")} heads=${["Reason", "Phase", "Nodes", "Replaced by"]}
      rows=${(page.commands || []).map((one) => [one.reason, one.phase, (one.nodes || []).join(", "), (one.by || []).join(", ") || "nothing"])} />
    ${past ? html`<h3>Since ${time(past.since)}</h3><${Table} caption="Decisions, newest first, with prices per hour. What new nodes save is compared with the greedy rule" none=${ofNodes(page, "Nothing was decided.")} heads=${["Time", "Reason", "Decision", "Before#", "After#", "Saved#", "Others blocked"]}
      rows=${all.slice(here * DECISIONS_A_PAGE, (here + 1) * DECISIONS_A_PAGE).map((one) => [time(one.at), one.reason, `${one.text}${one.state ? ` (${one.state})` : ""}`, orNothing(page, one.before), orNothing(page, one.after), orNothing(page, one.saved), (one.blocked || []).join(", ")])} />
      <${Pager} at=${here} count=${all.length} size=${DECISIONS_A_PAGE} go=${setAt} what="decisions" />` : null}</section>`;
  }

  function Sums({ page }) {
    const s = page.sums;
    if (!s) return null;
    const bound = page.history && page.history.bound;
    const rows = [
      ["Nodes", (s.nodes || 0).toLocaleString("en")], ["Pods", (s.pods || 0).toLocaleString("en")],
      ["Planned", (s.planned || 0).toLocaleString("en")], ["Waiting", ((page.waiting || []).reduce((a, one) => a + one.pods, 0) + (page.hiddenWaiting || 0)).toLocaleString("en")],
      ["Per hour", money(page, s.usd || 0, 2) + (s.unpriced ? ` and ${plural(s.unpriced, "node")} of unknown price` : "")],
      ...(bound ? [["Greedy rule", money(page, bound.greedy, 2)], ["Proved bound", money(page, bound.bound, 2)]] : []),
      ["CPU requested", percent(s.usedCpu || 0, s.cpu)], ["Memory requested", percent(s.usedMemory || 0, s.memory)],
    ];
    return html`<dl class="sums">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
  }

  const LINKS = [["nodes", "Nodes"], ["waiting", "Waiting pods"], ["pools", "NodePools"], ["cost", "Price over time"], ["decisions", "Decisions"], ["short", "Interruptions and shortages"]];

  function App({ page, moments, problem, why }) {
    const [open, setOpen] = useState(null);
    const node = open && (page.nodes || []).find((one) => (open.claim ? one.claim === open.claim : one.name === open.name));
    return html`<a class="skip" href="#nodes">Skip to the nodes</a><${Hatch} />
      <header><h1>Dovetail${page.title ? `: ${page.title}` : ""}</h1>
        <div class="dim">${time(page.at)}${page.source ? `, from ${page.source}` : ""}</div>
        <div role="status" aria-live="polite">${problem ? html`<p class="bad">${problem}</p>` : null}</div>
        ${(page.missing || []).map((one) => html`<p class="note">${one}.</p>`)}
        ${page.leftOut ? html`<p class="note">${plural(page.leftOut, "node")} left out.</p>` : null}
        <${Sums} page=${page} />
        <nav aria-label="Sections"><ul>${LINKS.map(([id, text]) => html`<li><a href="#${id}">${text}</a></li>`)}</ul></nav></header>
      <main><${Nodes} page=${page} open=${setOpen} /><${Waiting} page=${page} /><${Pools} page=${page} /><${Cost} page=${page} moments=${moments} /><${Decisions} page=${page} /><${Short} page=${page} /></main>
      ${open && node ? html`<${NodeDialog} key=${node.claim || node.name} page=${page} node=${node} close=${() => setOpen(null)} why=${why} />` : null}`;
  }

  // ---------------------------------------------------------------- where pages come from

  const root = document.getElementById("app");
  const now = { page: null, moments: [], problem: "", why: null };
  const show = () => {
    if (now.page) { if (!root.dataset.shown) { root.textContent = ""; root.dataset.shown = "1"; } render(html`<${App} ...${now} />`, root); document.title = `Dovetail${now.page.title ? `: ${now.page.title}` : ""}`; }
    else if (now.problem) root.firstElementChild.textContent = now.problem;
  };
  const take = (page) => {
    page.classes = page.classes || [];
    now.page = page; now.problem = "";
    if (page.sums && !(page.history && page.history.moments)) {
      now.moments = [...now.moments.filter((one) => one.at < page.at).slice(1 - MOMENTS), { at: page.at, usd: page.sums.usd || 0 }];
    }
    show();
  };

  const data = document.getElementById("data");
  if (data) { take(JSON.parse(data.textContent)); return; }

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const KEPT = "dovetail-session";
  const session = async () => {
    const secret = location.hash.slice(1);
    if (secret && !LINKS.some(([id]) => id === secret)) {
      history.replaceState(null, "", location.pathname);
      const answer = await fetch("/session", { method: "POST", body: secret });
      if (answer.ok) sessionStorage.setItem(KEPT, await answer.text());
    }
    return sessionStorage.getItem(KEPT) || "";
  };
  const event = (text) => {
    const lines = Object.fromEntries(text.split("\n").filter((line) => line.includes(": ")).map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
    if (lines.event === "page") take(JSON.parse(lines.data));
    else if (lines.event === "problem") { now.problem = JSON.parse(lines.data).text; show(); }
  };
  const follow = async (headers, stopped) => {
    const answer = await fetch("/events", { headers, signal: stopped });
    if (answer.status === 401) return false;
    if (!answer.ok) throw new Error(String(answer.status));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop();
      pieces.forEach(event);
    }
  };
  const main = async () => {
    const key = await session(), headers = { "X-Dovetail-Session": key };
    now.why = async (path) => {
      try {
        const found = await (await fetch(`/why/${path}`, { headers })).json();
        return found.text || found.error || "";
      } catch { return "The command does not answer any more."; }
    };
    for (let wait = 1000; ; wait = Math.min(15000, wait * 2)) {
      while (document.hidden) await pause(500); // nobody looks
      const stop = new AbortController(), hidden = () => document.hidden && stop.abort();
      document.addEventListener("visibilitychange", hidden);
      try {
        if (!(await follow(headers, stop.signal))) { now.problem = "This address has been used, or its command has ended. Run dovetail ui again."; show(); return; }
        wait = 500;
      } catch (error) {
        if (!document.hidden) { now.problem = "The command does not answer any more."; show(); }
      } finally { document.removeEventListener("visibilitychange", hidden); }
      await pause(wait);
    }
  };
  main();
})();
