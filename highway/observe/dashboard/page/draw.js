"use strict";
// What the page draws with: elements, numbers, the graph of the topology, and charts. Text only ever enters as text nodes and attributes.

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);

function put(node, text) {  // only if it changes, so that a selection and a reader's place stay
  if (node.textContent !== text) node.textContent = text;
}

function count(value) {
  if (value === null || value === undefined) return "–";
  const small = Math.abs(value);
  return value.toLocaleString("en", small && small < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: small < 100 ? 1 : 0 });
}

const percent = (share) => `${Math.round(100 * share)}%`;

function size(bytes) {
  if (!bytes) return "–";
  return bytes > 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.round(bytes / 1e6)} MB`;
}

const perSecond = (rate, megabytes) => `${count(rate)} items/s, ${count(megabytes)} MB/s`;

const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");

// --- tables ---

class Table {
  // Columns are [heading, is text]; rows are kept by their number, and only cells that change are written.
  constructor(table, columns) {
    this.columns = columns;
    this.body = el("tbody");
    this.rows = [];
    table.replaceChildren(el("thead", {}, el("tr", {}, ...columns.map(([name, text]) => el("th", { scope: "col", class: text && "text" }, name)))), this.body);
  }

  show(rows) {
    while (this.rows.length > rows.length) this.rows.pop().remove();
    rows.forEach((row, number) => {
      if (!this.rows[number]) {
        this.rows[number] = el("tr", {}, ...this.columns.map(([, text]) => el("td", { class: text && "text" })));
        this.body.append(this.rows[number]);
      }
      row.forEach((cell, column) => {
        const place = this.rows[number].children[column];
        const [text, mark] = Array.isArray(cell) ? cell : [cell, ""];
        put(place, text);
        if (this.columns[column][1]) place.title = text;
        const wanted = `${this.columns[column][1] ? "text " : ""}${mark}`;
        if (place.className !== wanted) place.className = wanted;
      });
    });
  }
}

// --- the topology ---

function columnsOf(roles, links) {
  const depth = new Map(roles.map((role) => [role.name, 0]));
  for (let round = 0; round < roles.length; round += 1) {  // longest way from a source; a circle ends with the rounds
    for (const link of links) {
      if (depth.has(link.source) && depth.has(link.target)) {
        depth.set(link.target, Math.min(Math.max(depth.get(link.target), depth.get(link.source) + 1), roles.length - 1));
      }
    }
  }
  const columns = [];
  for (const role of roles) (columns[depth.get(role.name)] ||= []).push(role);
  return columns.filter(Boolean);
}

class Graph {
  constructor(place, onRole, onStage, onLink) {
    Object.assign(this, { place, onRole, onStage, onLink, shape: "" });
    new ResizeObserver(() => this.connect()).observe(place);
  }

  show(roles, links) {
    const shape = JSON.stringify([roles.map((role) => [role.name, role.stages.map((stage) => stage.name)]), links.map((link) => [link.source, link.target, link.name])]);
    if (shape !== this.shape) this.build(roles, links);
    this.shape = shape;
    for (const role of roles) this.updateRole(role);
    links.forEach((link, number) => this.updateLink(link, this.edges[number]));
  }

  build(roles, links) {
    this.nodes = new Map();
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.place.replaceChildren(this.svg);
    for (const column of columnsOf(roles, links)) {
      this.place.append(el("div", { class: "column" }, ...column.map((role) => this.node(role))));
    }
    this.edges = links.map((link) => {
      const label = el("button", { type: "button", class: "edge", onclick: () => this.onLink(link.name) }, el("b"), el("span"), el("br"), el("span", { class: "alarm" }));
      this.place.append(label);
      return { link, label };
    });
    this.connect();
  }

  node(role) {
    const title = el("button", { type: "button", class: "role", disabled: role.outside, onclick: () => this.onRole(role.name) });
    const [rate, facts] = [el("div", { class: "facts" }), el("div", { class: "facts" })];
    const stages = role.stages.map((stage) => {
      const row = el("button", { type: "button", class: "stage", onclick: () => this.onStage(role.name, stage.name) },
        el("span"), el("span"), el("span"), el("div", { class: "meter" }, el("i")));
      return row;
    });
    const box = el("div", { class: `node${role.outside ? " outside" : ""}`, role: "group", "aria-label": role.name }, title, rate, facts, ...stages);
    this.nodes.set(role.name, { box, title, rate, facts, stages });
    return box;
  }

  updateRole(role) {
    const { title, rate, facts, stages } = this.nodes.get(role.name);
    put(title, role.replicas > 1 ? `${role.name} × ${role.replicas}` : role.name);
    title.title = role.name;
    const phases = Object.entries(role.phases).map(([phase, number]) => (role.replicas > 1 ? `${number} ${phase}` : phase));
    const restarts = role.restarts ? `, ${role.restarts} restart${role.restarts > 1 ? "s" : ""}` : "";
    put(rate, role.outside ? "" : perSecond(role.rate, role.mb));
    put(facts, role.outside ? "outside this run" : `${phases.join(", ") || "not seen"}${restarts}`);
    role.stages.forEach((stage, number) => {
      const row = stages[number];
      const [name, busy, queue, meter] = row.children;
      put(name, stage.name);
      put(busy, percent(stage.busy));
      put(queue, stage.capacity ? `${stage.queued}/${stage.capacity}` : "");
      meter.firstChild.style.width = percent(stage.busy);
      row.classList.toggle("slowest", stage.slowest);
      const errors = stage.errors ? `, ${stage.errors} errors` : "";
      row.setAttribute("aria-label", `${stage.name}: ${percent(stage.busy)} busy, queue ${stage.queued} of ${stage.capacity}${errors}${stage.slowest ? ", bottleneck" : ""}`);
      row.title = row.getAttribute("aria-label");
    });
  }

  updateLink(link, { label }) {
    const [name, rate, , alarm] = label.children;
    put(name, link.name);
    put(rate, link.sent === null && link.received === null ? "" : `${count(link.rate)}/s, ${count(link.mb)} MB/s${link.missing ? `, ${count(link.missing)} not received` : ""}`);
    const faults = Object.entries(link.faults).filter(([, number]) => number).map(([what, number]) => `${count(number)} ${what}`);
    put(alarm, [link.lost ? `${count(link.lost)} lost` : "", ...faults].filter(Boolean).join(", "));
    label.title = `${link.name}: ${link.about}`;
  }

  connect() {
    if (!this.svg) return;
    const frame = this.place.getBoundingClientRect();
    const [dx, dy] = [this.place.scrollLeft - frame.left, this.place.scrollTop - frame.top];
    const isTall = getComputedStyle(this.place).flexDirection === "column";
    this.svg.setAttribute("width", this.place.scrollWidth);
    this.svg.setAttribute("height", this.place.scrollHeight - 4);
    this.svg.replaceChildren();
    const beside = new Map();
    for (const { link, label } of this.edges) {
      const [from, to] = [this.nodes.get(link.source), this.nodes.get(link.target)];
      if (!from || !to) continue;
      const [a, b] = [from.box.getBoundingClientRect(), to.box.getBoundingClientRect()];
      const start = isTall ? [a.left + a.width / 2 + dx, a.bottom + dy] : [a.right + dx, a.top + a.height / 2 + dy];
      const end = isTall ? [b.left + b.width / 2 + dx, b.top + dy] : [b.left + dx, b.top + b.height / 2 + dy];
      const bend = Math.max(40, Math.abs(isTall ? end[1] - start[1] : end[0] - start[0]) / 2);
      const turn = ([x, y], by) => (isTall ? `${x} ${y + by}` : `${x + by} ${y}`);
      this.path(`M ${start.join(" ")} C ${turn(start, bend)}, ${turn(end, -bend)}, ${end.join(" ")}`, link.publish ? "publish" : "");
      const [x, y] = end;
      this.path(isTall ? `M ${x} ${y} l -5 -9 h 10 z` : `M ${x} ${y} l -9 -5 v 10 z`, "head");
      const middle = [(start[0] + end[0]) / 2, (start[1] + end[1]) / 2];
      const spot = middle.map((value) => Math.round(value / 40)).join();
      const shift = (beside.get(spot) || 0);  // labels of links between the same two roles stand one below the other
      beside.set(spot, shift + 1);
      label.style.left = `${middle[0]}px`;
      label.style.top = `${middle[1] + 44 * shift}px`;
    }
  }

  path(shape, kind) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", shape);
    path.setAttribute("class", kind);
    this.svg.append(path);
  }
}

// --- charts ---

const COLORS = ["#3a6ea5", "#c2571a", "#2e7d4f", "#9c3f8f", "#8a7a00", "#b3261e", "#00838f", "#6a5acd"];
const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 4], [1, 4], [12, 3, 3, 3]];  // who does not see colours tells lines by these

class Chart {
  // Draws some figures of the history: lines are [label, name of the figure].
  constructor(place, title, lines, { isShare = false, height = 150 } = {}) {
    Object.assign(this, { title, names: lines.map(([, name]) => name) });
    this.place = el("div", { class: "chart" }, el("h3", {}, title));
    place.append(this.place);
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--faint"), grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false }, size: 52 };
    const shown = (value) => (value === null || value === undefined ? "–" : isShare ? percent(value) : count(value));
    const series = lines.map(([label], number) => ({
      label, stroke: COLORS[number % COLORS.length], width: 2, dash: DASHES[number % DASHES.length], spanGaps: false, points: { show: false }, value: (_, value) => shown(value),
    }));
    this.plot = new uPlot({
      width: Math.max(200, this.place.clientWidth), height,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, isShare ? 1 : Math.max(high || 0, 1e-9) * 1.1] } },
      axes: [{ ...axis, size: 28, space: 80, values: [[3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]] }, { ...axis, values: (_, ticks) => ticks.map(shown) }],
      series: [{ label: "time", value: (_, value) => (value ? clock(value) : "now") }, ...series],
    }, [[], ...lines.map(() => [])], this.place);
    this.resized = new ResizeObserver(() => this.plot.setSize({ width: Math.max(200, this.place.clientWidth), height }));
    this.resized.observe(this.place);
  }

  show(history) {
    const blank = history.times.map(() => null);
    this.plot.setData([history.times, ...this.names.map((name) => history.figures.get(name) || blank)]);
  }

  remove() {
    this.resized.disconnect();
    this.plot.destroy();
    this.place.remove();
  }
}
