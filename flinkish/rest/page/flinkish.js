// The page of a driver's jobs: epochs, watermarks and what holds them back, slow calls, checkpoints, exceptions, state.
// It reads what every other view reads (the description of a job), adds nothing, and puts no text into the page as HTML.
"use strict";

const REFRESH_MS = 2000;
const NO_WATERMARK = -9223372036854775808;
const END_OF_TIME = 9223372036854775807;
const ENDED = new Set(["FINISHED", "CANCELED", "FAILED", "SUSPENDED"]);
const GOOD = new Set(["RUNNING", "FINISHED", "COMPLETED", "REGISTERED"]);
const BAD = new Set(["FAILED", "FAILING", "LOST"]);

let chosen = location.hash.slice(1);
let operation = null;

// ---------------------------------------------------------------- elements

function element(name, attributes, ...children) {
  const made = name === "svg" || element.inSvg
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

function svg(name, attributes, ...children) {
  element.inSvg = true;
  try { return element(name, attributes, ...children); } finally { element.inSvg = false; }
}

function place(id, content, shown = true) {
  const section = document.getElementById(id);
  section.hidden = !shown;
  if (shown) section.querySelector(":scope > div:not(.buttons)").replaceChildren(content);
}

// columns: [title, row => cell, class]
function table(columns, rows) {
  const head = element("tr", {}, ...columns.map(([title, , kind]) => element("th", { class: kind, scope: "col" }, title)));
  const body = rows.map((row) => element("tr", {}, ...columns.map(([, cell, kind]) =>
    element("td", { class: kind }, cell(row)))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

// ---------------------------------------------------------------- texts

const number = (value) => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");

function bytes(value) {
  if (!value) return value === 0 ? "0 B" : "–";
  const power = Math.min(Math.floor(Math.log2(value) / 10), 4);
  return `${(value / 1024 ** power).toFixed(power && value / 1024 ** power < 100 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

const time = (ms) => ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";
const ago = (ms, now) => ms ? `${span(Math.max(0, now - ms))} ago` : "–";

function watermark(ms) {
  if (ms === null || ms === undefined || ms <= NO_WATERMARK) return "none";
  return ms >= END_OF_TIME ? "end of input" : time(ms);
}

const kindOf = (status) => GOOD.has(status) ? "good" : BAD.has(status) ? "bad" : "busy";
const status = (text) => element("span", { class: `status ${kindOf(text)}` }, text);

// ---------------------------------------------------------------- sections

// what the job, and each of its vertices, has done since it began, over all attempts and drivers: committed epochs
const sinceBegin = (job) => job.totals?.drivers ? job.totals : job.metrics;
const doneBy = (job, vertex) => job.totals?.vertices?.[vertex.uid] || vertex;

function showHead(job, now) {
  const ended = ENDED.has(job.status), done = sinceBegin(job), driver = job.totals?.drivers > 1 ? `driver ${job.totals.drivers} ` : "";
  const figures = [
    [span(Math.max(0, (ended ? job.end_time_ms : now) - job.start_time_ms)), driver + (ended ? "ran for" : "runs for")],
    [number(done.epochs), "epochs"],
    [number(done.records_in), "records in"],
    [number(done.records_out), "records out"],
    [number(done.restarts), "restarts"],
    [number(job.metrics.task_failures), "tasks run again"],
    [watermark(job.metrics.watermark_ms), "watermark"],
    [number(job.slots?.present), job.slots?.required ? `slots, needs ${job.slots.required}` : "slots"],
  ];
  const running = job.running_epoch;
  const last = job.story.filter((one) => one.subject.startsWith("job ")).pop();
  document.getElementById("head").replaceChildren(...[
    element("h2", {}, job.name, " ", status(job.status)),
    element("div", { class: "dim" }, `job ${job.id} · driver ${job.driver.host}, process ${job.driver.pid}`
      + (job.directory ? ` · ${job.directory}` : " · temporary directory")),
    last && element("div", {}, `${last.cause || ""}`),
    job.doing ? element("div", { class: "busy" }, job.doing) : null,
    job.slots?.note && job.slots.note !== job.doing ? element("div", { class: "busy" }, job.slots.note) : null,
    element("div", { class: "figures" }, ...figures.map(([value, title]) =>
      element("div", {}, element("b", {}, value), element("span", { class: "dim" }, title)))),
    running && element("div", {}, `epoch ${number(running.epoch)} has run for ${span(running.duration_ms)}: `
      + `${number(running.records_in)} records in, ${number(running.records_out)} out`),
  ].filter((child) => child !== null && child !== undefined));
}

function showWarnings(job) {
  const section = document.getElementById("warnings");
  section.hidden = !job.warnings.length;
  section.replaceChildren(...job.warnings.map((text) => element("p", { class: "busy" }, text)));
}

// the largest share of a second that a subtask spends so: busy_ms, backpressured_ms; null: it is not known
function shareOf(vertex, field) {
  const found = vertex.subtasks.filter((subtask) => subtask.current.rates).map((subtask) => subtask.current.rates[field]);
  return found.length ? Math.min(1, Math.max(...found) / 1000) : null;
}

const percent = (share) => share === null ? "–" : `${Math.round(share * 100)} %`;

function showGraph(job) {
  const width = 210, height = 80, gapX = 110, gapY = 18;
  const rows = {}, at = {};
  for (const vertex of job.vertices) {
    const row = rows[vertex.level] = (rows[vertex.level] || 0) + 1;
    at[vertex.id] = [vertex.level * (width + gapX), (row - 1) * (height + gapY)];
  }
  const levels = Object.keys(rows).length, most = Math.max(1, ...Object.values(rows));
  const drawn = [];
  for (const vertex of job.vertices) {
    // edges between the same two vertices are one line
    const ships = {};
    for (const edge of vertex.edges || vertex.inputs.map((source) => ({ source, ship_strategy: "" }))) {
      (ships[edge.source] = ships[edge.source] || new Set()).add(edge.ship_strategy);
    }
    for (const [source, strategies] of Object.entries(ships)) {
      if (!at[source]) continue;
      const ship = [...strategies].join(", ");
      const [x1, y1] = at[source], [x2, y2] = at[vertex.id];
      const [fromX, fromY, toX, toY] = [x1 + width, y1 + height / 2, x2, y2 + height / 2];
      drawn.push(svg("path", { class: "edge", d: `M${fromX} ${fromY} C${fromX + 30} ${fromY} ${toX - 30} ${toY} ${toX} ${toY}` },
        svg("title", {}, ship)));
      drawn.push(svg("text", { class: "dim", x: (fromX + toX) / 2, y: (fromY + toY) / 2 - 4, "text-anchor": "middle", "font-size": 10 },
        ship));
    }
  }
  for (const vertex of job.vertices) {
    const [x, y] = at[vertex.id], busy = shareOf(vertex, "busy_ms"), held = shareOf(vertex, "backpressured_ms");
    const done = doneBy(job, vertex), running = vertex.running_records_in || vertex.running_records_out
      ? `, now + ${number(vertex.running_records_in)}, ${number(vertex.running_records_out)}` : "";
    const short = (text, length) => text.length > length ? text.slice(0, length - 1) + "…" : text;
    drawn.push(svg("g", { transform: `translate(${x},${y})` },
      svg("title", {}, `${vertex.name}\nuid ${vertex.uid}\n${vertex.operators.map((one) => one.name).join("\n")}`),
      svg("rect", { class: "box", width, height, rx: 5 }),
      svg("rect", { width: Math.max(0, width * busy), height: 5, rx: 2, fill: busy > 0.8 ? "var(--bad)" : busy > 0.5 ? "var(--busy)" : "var(--good)" }),
      svg("rect", { x: width * busy, width: Math.max(0, width * Math.min(held, 1 - busy)), height: 5, rx: 2, fill: "var(--held)" }),
      svg("text", { x: 8, y: 22, "font-weight": 600 }, short(vertex.name, 30)),
      svg("text", { x: 8, y: 40, class: "dim" }, `${vertex.parallelism} × ${vertex.state.toLowerCase()}, busy ${percent(busy)}`),
      svg("text", { x: 8, y: 54, class: "dim" }, held > 0.1 ? `back-pressured ${percent(held)}` : ""),
      svg("text", { x: 8, y: 70 }, short(`${number(done.records_in)} in, ${number(done.records_out)} out${running}`, 34))));
  }
  const w = levels * (width + gapX) - gapX, h = most * (height + gapY) - gapY;
  place("graph", svg("svg", { width: w + 2, height: h + 2, viewBox: `-1 -1 ${w + 2} ${h + 2}`, role: "img", "aria-label": "job graph" }, ...drawn),
    job.vertices.length > 0);
}

const PHASES = [["run_ms", "tasks", "var(--run)"], ["prepare_ms", "prepared", "var(--prepare)"], ["commit_ms", "committed", "var(--commit)"]];

function showEpochs(job) {
  const epochs = (job.epochs || []).slice(-150);
  const step = 7, height = 110, longest = Math.max(1, ...epochs.map((epoch) => epoch.duration_ms));
  const bars = epochs.map((epoch, index) => {
    let y = height;
    const parts = PHASES.map(([field, , colour]) => {
      const part = Math.max(0, epoch[field] || 0) / longest * height;
      y -= part;
      return svg("rect", { x: index * step, y, width: step - 1, height: part, fill: colour });
    });
    const text = `epoch ${epoch.epoch}, ${time(epoch.time_ms)}: ${span(epoch.duration_ms)}, `
      + `${number(epoch.records_in)} in, ${number(epoch.records_out)} out, ${bytes(epoch.bytes)}`
      + (epoch.plan_ms === null || epoch.plan_ms === undefined ? "" : `; waited for and planned for ${span(epoch.plan_ms)} before`);
    return svg("g", {}, svg("title", {}, text), ...parts);
  });
  place("epochs", svg("svg", { width: Math.max(1, epochs.length) * step, height: height + 2, role: "img", "aria-label": "duration of the last epochs" }, ...bars),
    epochs.length > 0);
  document.querySelector("#epochs .legend").replaceChildren(`the longest of ${epochs.length} took ${span(longest)}`,
    ...PHASES.map(([, title, colour]) => element("span", { style: `--colour: ${colour}` }, title)));
}

// who holds the watermark of a vertex back: of the vertices before it, the subtask that is behind all others
function holding(job, vertex) {
  const of = (one) => one.watermark_ms ?? NO_WATERMARK;
  const [before] = job.vertices.filter((one) => vertex.inputs.includes(one.id) && !ENDED.has(one.state)
    && of(one) <= of(vertex) && (of(one) > NO_WATERMARK || of(vertex) === NO_WATERMARK))
    .sort((one, other) => of(one) - of(other));
  if (before) return holding(job, before) || before.name;
  const [first, ...others] = vertex.subtasks.filter((subtask) => !ENDED.has(subtask.current.state))
    .sort((one, other) => of(one.current) - of(other.current));
  if (!others.length || of(first.current) === of(others[others.length - 1].current)) return "";
  const splits = first.current.splits || [];
  return `${first.name}${splits.length ? `, which reads ${splits.slice(0, 2).join(", ")}${splits.length > 2 ? ", …" : ""}` : ""}`;
}

function showWatermarks(job, now) {
  const columns = [
    ["operator", (vertex) => vertex.name, "wide"],
    ["watermark", (vertex) => watermark(vertex.watermark_ms)],
    ["behind now", (vertex) => vertex.watermark_ms === null || vertex.watermark_ms <= NO_WATERMARK || vertex.watermark_ms >= END_OF_TIME
      ? "–" : span(Math.max(0, now - vertex.watermark_ms)), "number"],
    ["held back by", (vertex) => holding(job, vertex), "wide"],
    ["backlog", (vertex) => vertex.backlog_splits ? `${number(vertex.backlog_splits)} splits` : vertex.level || vertex.backlog === null ? "–" : `${number(vertex.backlog)} records`, "number"],
    ["late", (vertex) => number(vertex.operators.reduce((sum, one) => sum + (one.counts.numLateRecordsDropped || 0), 0)), "number"],
  ];
  place("watermarks", table(columns, job.vertices), job.vertices.length > 0);
}

function showSlow(job) {
  const found = job.vertices.flatMap((vertex) => vertex.subtasks).filter((subtask) => subtask.current.slow_call);
  place("slow", element("div", {}, ...found.map(({ name, current: { slow_call: call } }) => element("details", {},
    element("summary", {}, element("b", { class: "busy" }, span(call.running_ms)), ` ${name}: ${call.operator} (uid ${call.uid})`,
      element("span", { class: "dim" }, ` ${call.record ?? ""}${call.details}`)),
    element("pre", {}, call.stack)))), found.length > 0);
}

function showTaskManagers(job, now) {
  const of = (one) => one.memory || {};
  const heap = (one) => [of(one).heap_used ?? of(one).heap_peak, of(one).heap_max];
  const limit = job.memory && job.memory.python;
  const python = (one) => one.workers.reduce((sum, worker) => sum + (worker.rss_bytes || 0), 0);
  const columns = [
    ["task manager", (one) => element("span", { title: `executor ${one.executor} ${one.address}` }, one.id)],
    ["status", (one) => status(one.status)],
    ["since", (one) => element("span", { title: time(one.ended_ms ?? one.registered_ms) }, ago(one.ended_ms ?? one.registered_ms, now))],
    ["heard of", (one) => ago(one.heartbeat_ms, now), "number"],
    ["slots", (one) => number(one.slots), "number"],
    ["running", (one) => number(one.running_tasks), "number"],
    ["holds", (one) => number(one.holds), "number"],
    ["heap", (one) => element("span", { title: of(one).heap_used ? "used now" : "the most so far" },
      `${bytes(heap(one)[0])} of ${bytes(heap(one)[1])}`), "number"],
    ["JVM", (one) => bytes(of(one).jvm_rss), "number"],
    ["Python", (one) => python(one) ? element("span", { title: one.workers.map((worker) =>
      `process ${worker.pid}, ${ago(worker.reported_ms, now)}: ${bytes(worker.rss_bytes)}, ${worker.tasks.join(", ")}`).join("\n") },
      `${bytes(python(one))}${limit ? ` of ${bytes(limit)}` : ""} in ${number(one.workers.filter((worker) => worker.rss_bytes).length)}`) : "–", "number"],
    ["collections", (one) => one.garbage_collectors.length ? element("span", { title: one.garbage_collectors.map((collector) =>
      `${collector.name}: ${number(collector.count)}, ${span(collector.time_ms)}`).join("\n") },
      span(one.garbage_collectors.reduce((sum, collector) => sum + collector.time_ms, 0))) : "–", "number"],
    ["", (one) => one.reason, "wide"],
  ];
  place("task-managers", table(columns, job.task_managers || []), (job.task_managers || []).length > 0);
}

function showCheckpoints(job, now) {
  const rows = job.checkpoints.history.slice(-12).reverse();
  const columns = [
    ["number", (one) => one.id, "number"],
    ["", (one) => one.is_savepoint ? "savepoint" : one.incremental ? "incremental" : "checkpoint"],
    ["status", (one) => status(one.status)],
    ["epoch", (one) => number(one.epoch), "number"],
    ["triggered", (one) => element("span", { title: time(one.trigger_time_ms) }, ago(one.trigger_time_ms, now))],
    ["took", (one) => span(one.duration_ms), "number"],
    ["rows", (one) => number(one.rows_written), "number"],
    ["state", (one) => bytes(Object.values(one.state_bytes).reduce((sum, size) => sum + size, 0)), "number"],
    ["", (one) => one.failure_reason || one.path || "", "wide"],
  ];
  place("checkpoints", table(columns, rows));
  const ended = ENDED.has(job.status), busy = operation && !operation.done;
  const button = (text, kind, ask, start) => {
    const made = element("button", { type: "button", class: kind }, text);
    made.disabled = ended || busy;
    made.onclick = () => { if (confirm(ask)) begin(text, start); };
    return made;
  };
  document.querySelector("#checkpoints .buttons").replaceChildren(
    button("Savepoint", "", `Write a savepoint of '${job.name}'? The job goes on.`, () => post(`jobs/${job.id}/savepoints`, {})),
    button("Checkpoint", "", `Take a checkpoint of '${job.name}' now?`, () => post(`jobs/${job.id}/checkpoints`, {})),
    button("Stop with savepoint", "danger", `Stop '${job.name}' after a savepoint?`, () => post(`jobs/${job.id}/stop`, { drain: false })),
    button("Drain and stop", "danger", `Let all event-time timers of '${job.name}' fire, and stop it for good after a savepoint?`,
      () => post(`jobs/${job.id}/stop`, { drain: true })),
    button("Cancel", "danger", `Cancel '${job.name}' without a savepoint?`, () => ask(`jobs/${job.id}?mode=cancel`, "PATCH", {})));
  document.querySelector("#checkpoints .operation").replaceChildren(operation ? operation.text : "");
}

function showExceptions(job, now) {
  const found = job.exceptions.slice(-8).reverse().map((one) => element("details", one === job.exceptions[job.exceptions.length - 1] ? { open: "" } : {},
    element("summary", {}, element("b", { class: "bad" }, one.error_class), ` ${one.what || one.message} `,
      element("span", { class: "dim" }, `${ago(one.time_ms, now)}, attempt ${one.attempt}`
        + (one.restart_delay_ms !== null ? `, restarted after ${span(one.restart_delay_ms)}` : one.retried ? ", run again by Spark" : ""))),
    one.traceback && element("pre", {}, one.traceback),
    table([["", ([title]) => title], ["", ([, text]) => text, "wide"]], [["where", one.where], ["expected", one.expected], ["what to do", one.hint],
      ["who must act", one.who], ["task", one.task], ["epoch", one.epoch], ["place", one.place]].filter(([, text]) => text !== null && text !== ""))));
  place("exceptions", element("div", {}, ...found), found.length > 0);
}

function showState(job) {
  const rows = job.vertices.filter((vertex) => vertex.state_bytes > 0);
  const most = (vertex) => vertex.subtasks.reduce((one, other) => other.current.state_bytes > one.current.state_bytes ? other : one);
  const columns = [
    ["uid", (vertex) => vertex.uid, "wide"],
    ["operator", (vertex) => vertex.name, "wide"],
    ["size", (vertex) => bytes(vertex.state_bytes), "number"],
    ["largest subtask", (vertex) => `${most(vertex).name}: ${bytes(most(vertex).current.state_bytes)}`, "wide"],
  ];
  const uids = job.vertices.flatMap((vertex) => vertex.state_bytes > 0 ? vertex.operators.map((one) => one.uid) : []);
  const choice = document.querySelector("#lookup select");
  if ([...choice.options].map((one) => one.value).join() !== uids.join()) {
    choice.replaceChildren(...uids.map((uid) => element("option", {}, uid)));
  }
  place("state", table(columns, rows), rows.length > 0);
}

async function lookUp(form) {
  const found = document.getElementById("found"), query = new URLSearchParams();
  const say = (...content) => found.replaceChildren(...content);
  for (const name of ["uid", "state", "key"]) if (form[name].value.trim()) query.set(name, form[name].value.trim());
  if (!query.has("state")) ["uid", "key"].forEach((name) => query.delete(name));
  say(element("p", { class: "dim" }, "looking …"));
  try {
    const answer = await ask(`jobs/${chosen}/state?${query}`);
    const text = (value) => value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
    const columns = answer.states
      ? [["uid", (one) => one.uid, "wide"], ["state", (one) => one.state, "wide"], ["kind", (one) => one.kind],
        ["rows", (one) => number(one.rows), "number"], ["keys", (one) => number(one.keys), "number"], ["size", (one) => bytes(one.bytes), "number"]]
      : [["key", (one) => text(one.key), "wide"], ["namespace", (one) => text(one.namespace)],
        ["map key", (one) => text(one.map_key)], ["value", (one) => text(one.value), "wide"]];
    if (answer.states) {
      document.getElementById("states").replaceChildren(...answer.states.map((one) => element("option", { value: one.state })));
    }
    say(element("p", { class: "dim" }, `checkpoint ${answer.checkpoint}${answer.more ? ", the first entries" : ""}`),
      table(columns, answer.states || answer.entries));
  } catch (error) {
    say(element("p", { class: "bad" }, error.message));
  }
}

function showLifecycle(job) {
  const columns = [["", (one) => time(one.time_ms)], ["task", (one) => one.task, "wide"], ["operator", (one) => one.operator, "wide"],
    ["call", (one) => one.call], ["epoch", (one) => one.epoch < 0 ? "–" : number(one.epoch), "number"],
    ["process", (one) => `${one.pid} on ${one.host}`, "wide"]];
  const calls = job.lifecycle || [];
  place("lifecycle", table(columns, calls.slice(-60).reverse()), calls.length > 0);
}

function showStory(job) {
  const columns = [["", (one) => time(one.time_ms)], ["", (one) => one.subject, "wide"], ["", (one) => `${one.before || ""} → ${one.after || ""}`], ["", (one) => one.cause, "wide"]];
  place("story", table(columns, job.story.slice(-30).reverse()), job.story.length > 0);
}

function show(job, now) {
  document.title = `${job.status} ${job.name} – flinkish`;
  showHead(job, now);
  showWarnings(job);
  showGraph(job);
  showEpochs(job);
  showWatermarks(job, now);
  showSlow(job);
  showTaskManagers(job, now);
  showCheckpoints(job, now);
  showExceptions(job, now);
  showState(job);
  showLifecycle(job);
  showStory(job);
}

// ---------------------------------------------------------------- what is asked of the driver

async function ask(path, method = "GET", body = undefined) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(path, { method, credentials: "same-origin", ...sent });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error((value.errors || [`${answer.status} ${answer.statusText}`]).join(" "));
  return value;
}

async function post(path, body) {
  const accepted = await ask(path, "POST", body);
  const asked = path.replace(/stop$/, "savepoints");
  return { path: `${asked}/${accepted["request-id"]}` };
}

async function begin(title, start) {
  operation = { done: false, text: `${title}: asked for …` };
  try {
    const accepted = await start();
    if (!accepted.path) operation = { done: true, text: `${title}: accepted` };
    else await follow(title, accepted.path);
  } catch (error) {
    operation = { done: true, text: `${title}: ${error.message}` };
  }
  refresh();
}

async function follow(title, path) {
  for (;;) {
    const found = await ask(path);
    if (found.status.id === "COMPLETED") {
      const outcome = found.operation || {};
      const cause = outcome["failure-cause"] || outcome.failureCause;
      const text = cause ? cause["stack-trace"] || cause.class : outcome.location || (outcome.checkpointId ? `checkpoint ${outcome.checkpointId}` : "done");
      operation = { done: true, text: `${title}: ${text.split("\n")[0]}` };
      return;
    }
    operation = { done: false, text: `${title}: in progress …` };
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

async function refresh() {
  const trouble = document.getElementById("trouble");
  try {
    const { jobs } = await ask("jobs/overview");
    if (!jobs.some((job) => job.jid === chosen)) chosen = jobs.length ? jobs[0].jid : "";
    document.getElementById("jobs").replaceChildren(...jobs.map((job) =>
      element("a", { href: `#${job.jid}`, "aria-current": job.jid === chosen ? "true" : null }, job.name, " ", status(job.state))));
    if (chosen) {
      const found = await ask(`jobs/${chosen}/description`);
      show(found.job, found.now_ms);
    } else {
      document.getElementById("head").replaceChildren("This driver has no job yet.");
    }
    trouble.hidden = true;
  } catch (error) {
    trouble.hidden = false;
    trouble.textContent = `The driver does not answer (${error.message}). What is shown is as of its last answer.`;
  }
}

document.getElementById("lookup").addEventListener("submit", (event) => { event.preventDefault(); lookUp(event.target); });
window.addEventListener("hashchange", () => { chosen = location.hash.slice(1); operation = null; refresh(); });
(async function again() {
  if (!document.hidden) await refresh();
  setTimeout(again, REFRESH_MS);
})();
