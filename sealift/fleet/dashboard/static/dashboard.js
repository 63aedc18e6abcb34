// What HTML alone cannot do: keys, a chart's values under the pointer or the arrow keys, and looking again every few seconds.
// Every page works without it.
"use strict";

const EVERY_MS = 1000;
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;

function start() {
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => showTip(event.target, event.clientX, event.clientY));
  document.addEventListener("pointerleave", hideTip);
  document.addEventListener("focusin", (event) => { if (!event.target.closest?.(".chart")) leaveChart(); });
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", closeDrops);
  const button = document.getElementById("show-keys");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", showKeys);
  }
  if (document.body.dataset.live) live(Number(document.body.dataset.live) * EVERY_MS);
}

// ---- charts ----

function showTip(target, x, y) {
  const text = target.dataset?.tip;
  if (!text) return hideTip();
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
}

function hideTip() {
  tip.hidden = true;
}

function leaveChart() {
  document.querySelectorAll(".at").forEach((one) => one.classList.remove("at"));
  hideTip();
}

// Left and right go through a focused chart's columns or frames; what they hold is shown, and said to screen readers.
function stepChart(chart, by) {
  const slots = [...chart.querySelectorAll("[data-tip]")];
  if (!slots.length) return;
  const now = slots.findIndex((slot) => slot.classList.contains("at"));
  const next = now < 0 ? (by > 0 ? 0 : slots.length - 1) : Math.min(Math.max(now + by, 0), slots.length - 1);
  leaveChart();
  slots[next].classList.add("at");
  const box = slots[next].getBoundingClientRect();
  showTip(slots[next], box.right, box.top);
  say(slots[next].dataset.tip.replaceAll("\n", ", "));
}

function say(text) {
  document.getElementById("said").textContent = text;
}

// ---- keys ----

let leading = -Infinity; // when "g" was typed

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    leaveChart();
    const open = document.querySelector("details.drop[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
    return;
  }
  if (event.target.closest("input, select, textarea")) return;
  const chart = event.target.closest(".chart");
  if (chart && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    stepChart(chart, event.key === "ArrowRight" ? 1 : -1);
    event.preventDefault();
    return;
  }
  if (performance.now() - leading < 1500) {
    leading = -Infinity;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  const actions = {
    g: () => { leading = performance.now(); },
    "?": showKeys,
    "/": () => {
      const filters = document.querySelector("details.filters");
      if (!filters) return;
      filters.open = true;
      filters.querySelector("input:not([type=hidden])").focus();
    },
    "[": () => document.getElementById("earlier")?.click(),
    "]": () => document.getElementById("later")?.click(),
    ".": () => document.getElementById("pause")?.click(),
  };
  if (actions[event.key]) {
    actions[event.key]();
    event.preventDefault();
  }
}

function showKeys() {
  document.getElementById("keys")?.showModal();
}

function closeDrops(event) {
  document.querySelectorAll("details.drop[open]").forEach((one) => { if (!one.contains(event.target)) one.open = false; });
}

// ---- live ----

// The same page again, its content put in place of the old. Not while somebody types, points at a chart's values or has a menu open.
function live(everyMs) {
  let paused = false;
  const wire = () => {
    const button = document.getElementById("pause");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    button.addEventListener("click", () => {
      paused = !paused;
      wire();
      say(paused ? "Paused" : "Live");
    }, { once: true });
  };
  const look = async () => {
    const content = document.getElementById("live");
    const active = document.activeElement;
    const busy = content.querySelector("details[open], .at") || !tip.hidden || (content.contains(active) && active.matches("input, select"));
    if (paused || busy || document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live");
      if (!fresh) throw new Error("no content");
      const focused = content.contains(active) ? pathTo(content, active) : null;
      content.replaceWith(document.adoptNode(fresh));
      if (focused) follow(document.getElementById("live"), focused)?.focus({ preventScroll: true });
      wire();
    } catch (problem) {
      say(`The collector does not answer (${problem.message}); the page tries again.`);
    }
  };
  wire();
  setInterval(look, everyMs);
}

// Where an element is among its siblings, so that focus stays on the same place of the new content.
function pathTo(from, element) {
  const path = [];
  for (let one = element; one !== from; one = one.parentElement) path.unshift([...one.parentElement.children].indexOf(one));
  return path;
}

function follow(from, path) {
  return path.reduce((one, index) => one?.children[index], from);
}

start();
