"use strict";
// Asks for one document per second, and shows it. What was said is in now; the last hour is in past.

const EVERY = 1000;  // milliseconds between two documents
const POINTS = 720;  // of the history
const LINES = 2000;  // of the log that are kept, and
const SHOWN = 400;  // that are in the page
const MOST_LINES = 8;  // of a chart

const past = { count: -1, times: [], figures: new Map() };
let now = null;
let about = { places: [], check: [], note: "", size: 144 };
let opened = null;  // the role or stage whose details are shown: {role, stage}
let detail = null;
let charts = [];
let chartsOf = "";
const lines = [];
let lastLine = 0;

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer;
}

// --- the last hour ---

async function loadPast() {
  const bytes = await (await get("history.bin")).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  past.count = head.count;
  past.times = head.times;
  past.figures.clear();
  head.names.forEach((name, number) => {
    const values = new Float32Array(bytes, 4 + length + 4 * number * head.times.length, head.times.length);
    past.figures.set(name, Array.from(values, (value) => (Number.isNaN(value) ? null : value)));
  });
}

async function notePast() {
  if (now.count === past.count) return false;
  if (now.count !== past.count + 1 || past.count < 1) await loadPast();
  else {
    past.count = now.count;
    past.times.push(now.time);
    for (const name of Object.keys(now.point)) if (!past.figures.has(name)) past.figures.set(name, past.times.slice(1).map(() => null));
    for (const [name, values] of past.figures) values.push(now.point[name] ?? null);
    if (past.times.length > POINTS) {
      past.times.shift();
      for (const [name, values] of past.figures) {
        values.shift();
        if (values.every((value) => value === null)) past.figures.delete(name);
      }
    }
  }
  return true;
}

// --- the answer ---

function showAnswer() {
  const { share, sentence, outside, seconds } = now.wait;
  put(byId("share"), share === null ? "–" : `${outside ? "≤ " : ""}${percent(share)}`);
  const span = seconds >= 55 ? "the last minute" : `the last ${Math.max(1, Math.round(seconds))} seconds`;
  put(byId("caption"), share === null ? "Nothing waits for data at present." : `of ${span}, the trainer waited for data`);
  put(byId("sentence"), sentence);
  byId("answer").className = share === null ? "" : share < 0.05 ? "good" : share < 0.2 ? "warn" : "bad";
  const phases = Object.entries(now.phases).map(([phase, number]) => el("li", { class: `phase ${phase}` }, `${number} ${phase}`));
  byId("phases").replaceChildren(...phases);
  const problems = byId("problems");
  if (problems.dataset.shown !== JSON.stringify(now.problems)) {
    problems.dataset.shown = JSON.stringify(now.problems);
    problems.replaceChildren(...now.problems.map((problem) => el("li", {}, problem)));
  }
}

// --- details of a role or a stage ---

function open(role, stage = null) {
  opened = { role, stage };
  detail?.chart.remove();
  const section = byId("detail");
  const close = el("button", { type: "button", onclick: closeDetail }, "Close");
  const facts = el("dl", { class: "facts-list" });
  const place = el("div");
  section.replaceChildren(el("div", { class: "head" }, el("h2", {}, stage ? `${role}: ${stage}` : role), close), facts, place);
  section.hidden = false;
  const prefix = stage ? `stage/${role}/${stage}/` : `role/${role}/`;
  const wanted = stage ? [["busy", "busy"], ["waits for input", "starved"], ["waits for room", "blocked"], ["queue", "full"]] : [["items/s", "rate"]];
  const chart = new Chart(place, stage ? "Share of the workers' time, and how full the queue is" : "Items per second", wanted.map(([label, name]) => [label, prefix + name]), { isShare: Boolean(stage) });
  detail = { facts, chart };
  if (!stage) {
    const replicas = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Replicas of ${role}` }, el("table", { id: "replicas" }));
    detail.strip = el("ol", { class: "strip", "aria-hidden": "true" });
    detail.running = new Chart(place, "Replicas that run", [["replicas", `role/${role}/running`]], { height: 110 });
    section.append(detail.strip, replicas);
    detail.table = new Table(replicas.firstChild, [["replica", true], ["host", true], ["phase", true], ["restarts"], ["items"], ["items/s"], ["busiest stage", true], ["busy"], ["errors"], ["cores"], ["memory"], ["last error", true]]);
  }
  showDetail();
  drawDetail();
  close.focus({ preventScroll: true });
  section.scrollIntoView({ block: "nearest" });
}

function closeDetail() {
  detail?.chart.remove();
  detail?.running?.remove();
  opened = detail = null;
  byId("detail").hidden = true;
  byId("detail").replaceChildren();
}

function showFacts(facts) {
  detail.facts.replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function showDetail() {
  const role = now.roles.find((one) => one.name === opened?.role);
  if (!role) return;
  const stage = role.stages.find((one) => one.name === opened.stage);
  if (opened.stage) {
    if (stage) {
      showFacts([["workers", count(stage.workers)], ["items", count(stage.items)], ["items/s", count(stage.rate)], ["busy", percent(stage.busy)],
        ["waits for input", percent(stage.starved)], ["waits for room", percent(stage.blocked)],
        ["queue", stage.capacity ? `${stage.queued} of ${stage.capacity}` : ""], ["errors left out", count(stage.errors)], ["last error", stage.error]]);
    }
    return;
  }
  showFacts([["replicas", count(role.replicas)], ["running", count(role.running)], ["restarts", count(role.restarts)], ["on", role.machines.length > 6 ? `${role.machines.length} hosts` : role.machines.join(", ")],
    ["cores in use", count(role.cores)], ["memory", size(role.memory)], ["rate", perSecond(role.rate, role.mb)]]);
  const replicas = now.replicas.filter(([name]) => name === role.name);
  const urgency = { failed: 0, waiting: 1, starting: 2, draining: 3 };
  const sorted = [...replicas].sort((a, b) => (urgency[a[3]] ?? 4) - (urgency[b[3]] ?? 4));
  detail.table.show(sorted.map(([, name, host, phase, restarts, items, rate, busiest, busy, , errors, cores, memory, error]) => [
    name, host, [phase, `phase ${phase}`], count(restarts), count(items), count(rate), busiest, percent(busy), [count(errors), errors ? "alarm" : ""], cores.toFixed(1), size(memory), error,
  ]));
  while (detail.strip.children.length > replicas.length) detail.strip.lastChild.remove();
  replicas.forEach(([, name, , phase, , , , , , load], number) => {
    const square = detail.strip.children[number] || detail.strip.appendChild(el("li"));
    square.className = phase;
    square.title = `${name}: ${phase}, works ${percent(load)} of its time`;
    square.style.backgroundSize = `100% ${percent(load)}`;
  });
}

function drawDetail() {
  detail?.chart.show(past);
  detail?.running?.show(past);
}

// --- charts ---

function showCharts() {
  const busiest = (kind, names) => names.map((name) => [name, `${kind}/${name}/rate`])
    .sort(([, a], [, b]) => (now.point[b] || 0) - (now.point[a] || 0)).slice(0, MOST_LINES).map(([name]) => name).sort();
  const roles = busiest("role", now.roles.filter((role) => !role.outside).map((role) => role.name));
  const links = busiest("link", [...new Set(now.links.map((link) => link.name))]);
  const key = JSON.stringify([roles, links, document.documentElement.dataset.theme]);
  if (key !== chartsOf) {
    chartsOf = key;
    charts.forEach((chart) => chart.remove());
    const place = byId("charts");
    const of = (kind, names, what) => names.map((name) => [name, `${kind}/${name}/${what}`]);
    charts = [new Chart(place, "Share of the last minute that the trainer waited", [["waited", "wait"]], { isShare: true }),
      new Chart(place, "Items per second of each role", of("role", roles, "rate"))];
    if (links.length) {
      charts.push(new Chart(place, "Megabytes per second on each link", of("link", links, "mb")));
      charts.push(new Chart(place, "Messages not received on each link", of("link", links, "missing")));
    }
  }
  charts.forEach((chart) => chart.show(past));
}

// --- links, epochs ---

let linksTable = null;

function showLinks() {
  byId("links-section").hidden = !now.links.length;
  linksTable ||= new Table(byId("links"), [["link", true], ["from", true], ["to", true], ["sent"], ["received"], ["not received"], ["lost"], ["items/s"], ["MB/s"], ["gaps"], ["duplicates"], ["malformed"]]);
  const alarm = (number) => [count(number), number ? "alarm" : ""];
  linksTable.show(now.links.map((link) => [link.name, link.source, link.target, count(link.sent), count(link.received), count(link.missing),
    alarm(link.lost), count(link.rate), count(link.mb), alarm(link.faults.gaps), alarm(link.faults.duplicates), alarm(link.faults.malformed)]));
}

function showProgress() {
  const found = now.roles.filter((role) => role.epochs !== null || role.progress !== null || role.notes.length);
  const rows = found.map((role) => {
    const epoch = role.epochs === null ? "" : `epoch ${Math.floor(role.epochs) + 1}, ${percent(role.epochs % 1)} of it`;
    const all = role.progress === null ? "" : `${percent(role.progress)} of all`;
    return el("li", {}, el("span", {}, role.name), el("span", {}, [epoch, all, ...role.notes].filter(Boolean).join("; ")));
  });
  if (!rows.length) rows.push(el("li", {}, "No source numbers epochs here."));
  byId("progress").replaceChildren(...rows);
}

// --- batches ---

let fieldsTable = null;
let seen = -1;
let isLookVisible = false;

async function look() {
  if (!about.places.length || byId("hold").checked || document.hidden || !isLookVisible) return;
  const place = byId("place").value;
  const batch = await (await get(`look.json?place=${encodeURIComponent(place)}`)).json();
  if (place !== byId("place").value) return;
  put(byId("look-note"), batch.note || `batch of ${clock(batch.time)}`);
  const key = `${place} ${batch.number}`;
  if (key === seen) return;
  const picture = batch.picture ? await (await get(`look.png?place=${encodeURIComponent(place)}&n=${batch.number}`)).blob() : null;
  if (picture && !picture.size) return;  // there is another batch by now: the next look shows it
  const images = picture ? await createImageBitmap(picture) : null;
  if (place !== byId("place").value) return;
  seen = key;
  fieldsTable ||= new Table(byId("fields"), [["field", true], ["dtype", true], ["shape", true], ["min"], ["mean"], ["max"], ["NaN"]]);
  const figure = (value) => (value === undefined || value === null ? "–" : String(Number(value.toPrecision(4))));
  fieldsTable.show(batch.fields.map((field) => [field.name, field.dtype, field.shape, figure(field.min), figure(field.mean), figure(field.max),
    field.nan === undefined ? "–" : [percent(field.nan), field.nan ? "alarm" : ""]]));
  const tiles = byId("tiles");
  while (tiles.children.length > batch.texts.length) tiles.lastChild.remove();
  batch.texts.forEach(([label, name], number) => {
    const tile = tiles.children[number] || tiles.appendChild(
      el("li", {}, el("canvas", { class: "image", role: "img", width: about.size, height: about.size }), el("div"), el("div", { class: "key" })));
    const [image, below, file] = tile.children;
    image.hidden = !images;
    image.setAttribute("aria-label", `image ${number + 1}, label ${label || "none"}`);
    if (images) image.getContext("2d").drawImage(images, -about.size * number, 0);
    put(below, label);
    put(file, name);
    file.title = name;
  });
  images?.close();  // a browser keeps images that come by their address, thousands of them, for hours
}

function choosePlace(name) {
  const number = about.places.indexOf(name);
  if (number < 0) return;
  byId("place").value = String(number);
  byId("hold").checked = false;
  byId("pictures").scrollIntoView({ block: "start" });
  byId("place").focus({ preventScroll: true });
}

// --- the log ---

function noteLines() {
  const fresh = now.log.filter(([number]) => number > lastLine);
  if (!fresh.length) return;
  if (lastLine && fresh[0][0] > lastLine + 1) lines.push([0, fresh[0][1], "highway", `${fresh[0][0] - lastLine - 1} lines were too many for this page`, false]);
  lines.push(...fresh);
  lines.splice(0, Math.max(0, lines.length - LINES));
  lastLine = fresh[fresh.length - 1][0];
  const known = new Set(Array.from(byId("log-role").options, (option) => option.value));
  for (const who of new Set(fresh.map(([, , name]) => name))) if (!known.has(who)) byId("log-role").append(el("option", { value: who }, who));
  showLog();
}

function showLog() {
  const [who, text, onlyErrors] = [byId("log-role").value, byId("log-text").value.toLowerCase(), byId("log-errors").checked];
  const wanted = lines.filter(([, , name, line, isError]) => (!who || name === who) && (!onlyErrors || isError) && (!text || line.toLowerCase().includes(text)));
  const log = byId("log");
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
  log.replaceChildren(...wanted.slice(-SHOWN).map(([, time, name, line, isError]) =>
    el("div", { class: isError ? "error" : false }, el("span", { class: "who" }, `${clock(time)} ${name} | `), line)));
  put(byId("log-note"), `${count(wanted.length)} of ${count(lines.length)} lines`);
  if (follows) log.scrollTop = log.scrollHeight;
}

// --- all of it ---

const graph = new Graph(byId("graph"), (role) => open(role), (role, stage) => open(role, stage), choosePlace);

async function show() {
  const answer = await (await get("now.json")).json();
  if (answer.error) throw new Error(answer.error);
  if (!answer.roles) return;
  now = answer;
  const isNewPoint = await notePast();
  showAnswer();
  graph.show(now.roles, now.links);
  if (opened) showDetail();
  showLinks();
  showProgress();
  noteLines();
  if (isNewPoint || !charts.length) {
    showCharts();
    drawDetail();
  }
  const state = byId("state");
  state.className = "";
  put(state, `as of ${clock(now.time)}`);
}

let isAsking = false;

async function step() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    if (!about.title) {
      about = await (await get("about.json")).json();
      put(byId("title"), about.title);
      document.title = `${about.title} – highway`;
      byId("place").replaceChildren(...about.places.map((name, number) => el("option", { value: number }, name)));
      byId("pictures").hidden = !about.places.length;
      byId("check-section").hidden = !about.check.length;
      put(byId("check"), about.check.join("\n"));
      put(byId("log-note"), about.note);
    }
    await show();
    await look();
  } catch (error) {
    const state = byId("state");
    state.className = "lost";
    put(state, `No answer (${error.message})${now ? `; this is how it was at ${clock(now.time)}` : ""}`);
  }
  isAsking = false;
}

const THEMES = { system: "", light: "light", dark: "dark" };

function useTheme(name) {
  document.documentElement.dataset.theme = THEMES[name];
  put(byId("theme"), `Theme: ${name}`);
  if (now) showCharts();
}

byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(localStorage.getItem("theme") || "system") + 1) % names.length];
  localStorage.setItem("theme", next);
  useTheme(next);
});
for (const id of ["log-role", "log-text", "log-errors"]) byId(id).addEventListener("input", showLog);
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && opened) closeDetail(); });
document.addEventListener("visibilitychange", step);
new IntersectionObserver((entries) => { isLookVisible = entries[entries.length - 1].isIntersecting; }).observe(byId("pictures"));
useTheme(THEMES[localStorage.getItem("theme")] === undefined ? "system" : localStorage.getItem("theme"));
setInterval(step, EVERY);
step();
