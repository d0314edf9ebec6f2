// Copyright: (c) 2026, gpu.fleet contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// Draws the tables of hosts and of checks. All text goes through textContent, so that no name becomes part of the page.
(() => {
  "use strict";
  const FIRST_ROWS = 100;
  const STATUSES = ["unreachable", "not_read", "fail", "warn", "unknown", "info", "ok"];
  const MARKS = { fail: "F", warn: "W", unknown: "?", info: "i", ok: "" };
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const text = (number) => (number === null ? null : data.strings[number]);
  const row = (kind, values) => Object.fromEntries(data.columns[kind].map((name, place) => [name, values[place]]));
  const natural = new Intl.Collator("en", { numeric: true });

  // An element with attributes and children; strings become text.
  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
    return element;
  }

  const label = (status) => make("span", { class: `status ${status}` }, status.replace("_", " "));
  const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
  const counted = (values) => {
    const numbers = new Map();
    for (const value of values) numbers.set(value, (numbers.get(value) || 0) + 1);
    return [...numbers].map(([value, number]) => `${number} × ${value}`).join(", ");
  };

  function decoded(values, place) {
    const host = row("host", values);
    for (const name of ["reason", "rack", "remedy", "driver", "kind", "cuda", "toolkit", "distribution", "kernel"]) host[name] = text(host[name]);
    host.place = place;
    host.reboots = host.reboots.map(text);
    host.gpus = host.gpus.map((gpu) => {
      const decodedGpu = row("gpu", gpu);
      for (const name of ["model", "bus", "error", "verdict", "remedy", "ecc", "mig"]) decodedGpu[name] = text(decodedGpu[name]);
      decodedGpu.instances = decodedGpu.instances.map((item) => row("instance", item));
      decodedGpu.processes = decodedGpu.processes.map((item) => row("process", item));
      return decodedGpu;
    });
    host.findings = host.findings.map((finding) => {
      const decodedFinding = row("finding", finding);
      for (const name of ["row", "verdict", "remedy", "message"]) decodedFinding[name] = text(decodedFinding[name]);
      return decodedFinding;
    });
    host.models = [...new Set(host.gpus.map((gpu) => gpu.model || "unknown"))];
    host.problems = host.findings.filter((finding) => finding.verdict === "fail" || finding.verdict === "warn").length;
    host.memory = sum(host.gpus.map((gpu) => gpu.memory));
    host.memoryTotal = sum(host.gpus.map((gpu) => gpu.memoryTotal));
    host.power = sum(host.gpus.map((gpu) => gpu.power));
    host.powerLimit = sum(host.gpus.map((gpu) => gpu.powerLimit));
    return host;
  }

  const hosts = data.hosts.map(decoded);
  const haystacks = hosts.map((host) =>
    [
      host.name, host.status, host.reason, host.rack, host.remedy, host.driver, host.cuda, host.distribution, host.kernel, host.models,
      host.gpus.flatMap((gpu) => [gpu.uuid, gpu.serial, gpu.bus, gpu.instances.map((item) => text(item.profile)), gpu.processes.map((process) => text(process.name))]),
      host.findings.map((finding) => finding.message),
    ].flat(3).filter(Boolean).join("\n").toLowerCase());

  // The table of hosts

  const COLUMNS = [
    { head: "host", key: (host) => host.name },
    { head: "status", key: (host) => STATUSES.indexOf(host.status) },
    { head: "remedy", key: (host) => host.remedy || "" },
    { head: "GPUs", key: (host) => host.gpus.length },
    { head: "driver", key: (host) => host.driver || "" },
    { head: "CUDA", key: (host) => host.cuda || "" },
    { head: "memory", key: (host) => (host.memoryTotal ? host.memory / host.memoryTotal : -1) },
    { head: "power", key: (host) => host.power },
    { head: "rack", key: (host) => host.rack || "" },
    { head: "problems", key: (host) => host.problems, number: true },
  ];
  const order = { column: 1, descending: false };
  let shown = FIRST_ROWS;
  let selected = [];
  const opened = new Set();

  function bar(value, limit, words) {
    if (value === null || !limit) return words;
    const share = Math.min(100, (100 * value) / limit);
    const inner = make("i");
    inner.style.width = `${share.toFixed(1)}%`;
    return make("span", { class: "measure" }, words, make("span", { class: "bar", "aria-hidden": "true" }, inner));
  }

  const gibibytes = (mebibytes) => (mebibytes === null ? "?" : (mebibytes / 1024).toFixed(mebibytes < 10240 ? 1 : 0));
  const memory = (item) => (item.memoryTotal ? bar(item.memory, item.memoryTotal, `${gibibytes(item.memory)} of ${gibibytes(item.memoryTotal)} GiB`) : "–");
  const watts = (value) => (value === null ? "?" : Math.round(value));
  const power = (item) => (item.powerLimit ? bar(item.power, item.powerLimit, `${watts(item.power)} of ${watts(item.powerLimit)} W`) : "–");

  function cells(host) {
    const gpus = host.gpus.length ? counted(host.gpus.map((gpu) => gpu.model || "unknown")) : host.onBus ? `${host.onBus} on PCI` : "–";
    return [
      label(host.status), host.remedy && host.remedy !== "none" ? host.remedy.replaceAll("_", " ") : "–", gpus, host.driver || "–", host.cuda || "–",
      memory(host), power(host), host.rack || "–", String(host.problems),
    ];
  }

  function drawHosts() {
    const head = make("tr", {}, COLUMNS.map((column, place) => {
      const button = make("button", { type: "button" }, column.head);
      button.addEventListener("click", () => {
        order.descending = order.column === place ? !order.descending : false;
        order.column = place;
        draw();
        byId("host-table").querySelectorAll("thead button")[place].focus();
      });
      const sorted = order.column === place ? (order.descending ? "descending" : "ascending") : null;
      return make("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": sorted }, button);
    }));
    const body = make("tbody");
    for (const host of selected.slice(0, shown)) {
      const button = make("button", { type: "button", class: "open", "aria-expanded": String(opened.has(host.place)) }, host.name);
      const line = make("tr", { "data-host": host.name }, make("th", { scope: "row" }, button), cells(host).map((cell, place) => make("td", { class: COLUMNS[place + 1].number ? "number" : null }, cell)));
      button.addEventListener("click", () => toggle(host, button, line));
      body.append(line);
      if (opened.has(host.place)) body.append(detail(host));
    }
    byId("host-table").replaceChildren(make("caption", {}, "All hosts; open one for its GPUs, processes and topology"), make("thead", {}, head), body);
    byId("shown").textContent = `${selected.length} of ${hosts.length} hosts`;
    byId("more").hidden = selected.length <= shown;
    byId("more").textContent = `Show all ${selected.length} hosts`;
  }

  function toggle(host, button, line) {
    const open = !opened.has(host.place);
    button.setAttribute("aria-expanded", String(open));
    if (open) {
      opened.add(host.place);
      line.after(detail(host));
    } else {
      opened.delete(host.place);
      line.nextElementSibling.remove();
    }
  }

  // One host

  function detail(host) {
    const parts = [];
    if (host.reason) parts.push(make("p", {}, host.reason));
    const system = [host.distribution, host.kernel && `kernel ${host.kernel}`, host.kind && `${host.kind} kernel modules`, host.toolkit && `container toolkit ${host.toolkit}`];
    if (system.some(Boolean)) parts.push(make("p", { class: "quiet" }, system.filter(Boolean).join(", ")));
    if (host.findings.length) parts.push(make("ul", { class: "plain" }, host.findings.map((finding) => make("li", {}, label(finding.verdict), " ", finding.message))));
    if (host.reboots.length) parts.push(make("p", {}, "Waits for a reboot: ", host.reboots.join("; ")));
    if (host.gpus.length) parts.push(make("div", { class: "wide" }, gpuTable(host)));
    if (host.nics.length) parts.push(make("p", { class: "quiet" }, "Network adapters: ", host.nics.map((values) => adapter(row("nic", values))).join("; ")));
    const picture = host.topology === null ? null : byId(`topology-${host.topology}`);
    if (picture) parts.push(make("div", { class: "wide" }, picture.content.cloneNode(true)));
    return make("tr", { class: "detail" }, make("td", { colspan: COLUMNS.length }, parts));
  }

  function adapter(nic) {
    const words = [nic.rdma ? "RDMA" : null, nic.speed === null ? null : `${nic.speed} Gbit/s`, nic.up === false ? "no link" : null, nic.node === null ? null : `NUMA ${nic.node}`];
    return `${text(nic.names)} (${words.filter(Boolean).join(", ") || "no link known"})`;
  }

  function gpuTable(host) {
    const heads = ["GPU", "verdict", "UUID and serial", "memory", "power", "°C", "use", "ECC", "errors", "NVLinks", "runs"];
    const lines = host.gpus.map((gpu) => [make("tr", { class: gpu.mig === "enabled" ? "divided" : null },
      make("th", { scope: "row" }, `${gpu.index} ${gpu.model || "unknown"}`),
      make("td", {}, gpu.verdict ? label(gpu.verdict) : "–"),
      make("td", { class: "ids quiet" }, gpu.error || [gpu.uuid, gpu.serial, gpu.bus].filter(Boolean).map((id) => make("div", {}, id))),
      make("td", {}, memory(gpu)), make("td", {}, power(gpu)),
      make("td", {}, gpu.temperature === null ? "–" : gpu.temperature),
      make("td", {}, gpu.utilization === null ? "–" : `${gpu.utilization} %`),
      make("td", {}, gpu.ecc || "–"),
      make("td", {}, errors(gpu)),
      make("td", {}, gpu.links ? `${gpu.linksActive} of ${gpu.links}` : "–"),
      make("td", {}, gpu.mig === "enabled" ? `${gpu.instances.length} MIG instances` : processes(gpu.processes, gpu.processCount))),
      gpu.mig === "enabled" ? make("tr", {}, make("td", { colspan: heads.length }, slices(gpu))) : null]);
    return make("table", {}, make("caption", {}, `GPUs of ${host.name}`), make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, lines));
  }

  function errors(gpu) {
    const found = [[gpu.uncorrected, "uncorrected"], [gpu.corrected, "corrected"], [(gpu.remapped || 0) + (gpu.remappedUncorrectable || 0), "rows remapped"]];
    return found.filter(([number]) => number).map(([number, words]) => `${number} ${words}`).join(", ") || "–";
  }

  function processes(found, all) {
    if (!found.length) return "–";
    const lines = found.map((process) => make("li", {}, `${text(process.name) || "?"} (${process.pid}${process.memory === null ? "" : `, ${gibibytes(process.memory)} GiB`})`));
    if (all > found.length) lines.push(make("li", {}, `and ${all - found.length} more`));
    return make("ul", { class: "plain names" }, lines);
  }

  function slices(gpu) {
    const units = Math.max(/\bA30\b|\bRTX PRO\b/.test(gpu.model) ? 4 : 8, ...gpu.instances.map((item) => item.start + item.size));
    const boxes = [];
    const box = (start, size, kind, ...children) => {
      const made = make("div", { class: kind }, children);
      made.style.gridColumn = `${start + 1} / span ${size}`;
      made.style.gridRow = "1";
      boxes.push(made);
    };
    // What does not fit is shown to a pointer.
    const line = (name, kind, words) => make(name, { class: kind, title: words }, words);
    let next = 0;
    for (const item of [...gpu.instances].sort((one, other) => one.start - other.start)) {
      if (item.start > next) box(next, item.start - next, "free", "free");
      const running = gpu.processes.filter((process) => process.instance === item.id);
      box(item.start, item.size, null, line("strong", null, text(item.profile)), running.map((process) => line("div", "runs", text(process.name) || "?")));
      next = item.start + item.size;
    }
    if (next < units) box(next, units - next, "free", "free");
    return make("div", { class: "slices" }, boxes);
  }

  // The table of checks

  function drawChecks() {
    const worst = new Map();
    const lines = [];
    for (const host of selected) {
      const found = new Map();
      for (const finding of host.findings) {
        if (finding.verdict === "ok") continue;
        const known = found.get(finding.row) || { verdict: finding.verdict, number: 0 };
        known.number += 1;
        if (STATUSES.indexOf(finding.verdict) < STATUSES.indexOf(known.verdict)) known.verdict = finding.verdict;
        found.set(finding.row, known);
        const place = STATUSES.indexOf(known.verdict);
        worst.set(finding.row, Math.min(worst.has(finding.row) ? worst.get(finding.row) : 99, place));
      }
      if (found.size) lines.push([host, found]);
    }
    const checks = [...worst].sort((one, other) => one[1] - other[1] || natural.compare(one[0], other[0])).map(([check]) => check);
    if (!lines.length) {
      byId("check-table").replaceChildren(make("caption", {}, "No check has a finding on these hosts."));
      return;
    }
    const head = make("tr", {}, make("th", { scope: "col" }, "host"), checks.map((check) => make("th", { scope: "col", class: "check" }, make("span", {}, check.replaceAll("_", " ")))));
    const body = lines.slice(0, shown).map(([host, found]) => make("tr", {}, make("th", { scope: "row" }, host.name), checks.map((check) => {
      const finding = found.get(check);
      if (!finding) return make("td", {});
      const mark = MARKS[finding.verdict] + (finding.number > 1 ? finding.number : "");
      const words = `${finding.verdict}: ${check.replaceAll("_", " ")}, ${finding.number} of ${host.name}`;
      return make("td", {}, make("span", { class: `status ${finding.verdict}`, title: words, "aria-label": words, role: "img" }, mark));
    })));
    const left = lines.length > shown ? `; ${lines.length - shown} more with "Show all" above` : "";
    byId("check-table").replaceChildren(make("caption", {}, `${lines.length} hosts with findings${left}`), make("thead", {}, head), make("tbody", {}, body));
  }

  // Filters

  const FILTERS = { "by-status": (host) => [host.status], "by-model": (host) => host.models, "by-driver": (host) => [host.driver || "none"], "by-rack": (host) => [host.rack || "none"] };

  function fillFilters() {
    for (const [id, values] of Object.entries(FILTERS)) {
      const numbers = new Map();
      for (const value of hosts.flatMap(values)) numbers.set(value, (numbers.get(value) || 0) + 1);
      const names = [...numbers.keys()].sort(id === "by-status" ? (one, other) => STATUSES.indexOf(one) - STATUSES.indexOf(other) : natural.compare);
      byId(id).replaceChildren(make("option", { value: "" }, "all"), ...names.map((name) => make("option", { value: `=${name}` }, `${name.replace("not_read", "not read")} (${numbers.get(name)})`)));
    }
  }

  function draw() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.entries(FILTERS).map(([id, values]) => [byId(id).value.slice(1), values]).filter(([value]) => value);
    selected = hosts.filter((host) => words.every((word) => haystacks[host.place].includes(word)) && chosen.every(([value, values]) => values(host).includes(value)));
    const { key } = COLUMNS[order.column];
    const sign = order.descending ? -1 : 1;
    selected.sort((one, other) => {
      const [left, right] = [key(one), key(other)];
      return sign * (typeof left === "number" ? left - right : natural.compare(left, right)) || one.place - other.place;
    });
    drawHosts();
    drawChecks();
  }

  fillFilters();
  byId("filters").hidden = false;
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", () => { shown = FIRST_ROWS; draw(); });
  byId("filters").addEventListener("reset", () => setTimeout(() => { shown = FIRST_ROWS; draw(); }));
  byId("more").addEventListener("click", () => { shown = Infinity; draw(); });
  draw();
  document.documentElement.dataset.ready = "true";
})();
