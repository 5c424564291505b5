// The pages work without this file. It keeps them live, pages on while scrolling, and answers keys.
"use strict";

const MIN_REFRESH_MS = 200;
const MAX_FIRST = 400;
const MAX_LISTS = 200;
const NEAR_PX = 1500;
const rows = document.getElementById("rows");
const form = document.getElementById("filters");
const live = document.getElementById("live");
const older = document.getElementById("older");
const kind = document.body.className;
document.documentElement.classList.add("scripted");

// Filters live in the URL and nowhere else.
function query() {
  const params = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) params.set(name, value);
  return params;
}

function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // escaped by the server; the policy runs no script that is not a file of ours
  return template.content;
}

let etag = "";
let generation = 0; // an answer to older filters is thrown away

async function ask(params, conditional) {
  const asked = generation;
  const response = await fetch(`/rows?${params}`, { headers: conditional && etag ? { "if-none-match": etag } : {} });
  if (response.status === 401) location.assign("/login");
  if (response.status === 304 || asked !== generation) return null;
  if (!response.ok) throw new Error(`rows: ${response.status}`);
  const answer = { lines: [...parse(await response.text()).children], before: response.headers.get("x-before") };
  if (asked !== generation) return null;
  if (conditional) etag = response.headers.get("etag");
  return answer;
}

function setBefore(before) {
  older.hidden = before === "0";
  older.dataset.before = before;
  const params = query();
  params.set("before", before);
  older.href = `/?${params}`;
}

function seqOf(line) { return Number(line.dataset.seq); }

// Lines hang in lists of about a page each: what is far from the screen costs the browser one box a list.
function list(lines) {
  const made = document.createElement("ol");
  made.className = "rows";
  made.setAttribute("aria-label", "Older requests");
  made.append(...lines);
  return made;
}

function replaceAll(lines) {
  const first = rows.firstElementChild;
  first.replaceChildren(...lines);
  rows.replaceChildren(first);
}

// Newest lines on top; lines that changed are replaced where they are, so that focus and scroll stay.
function merge(answer) {
  const first = rows.firstElementChild;
  const known = new Map([...first.children].slice(0, 2 * answer.lines.length).map((line) => [seqOf(line), line]));
  const overlaps = answer.lines.some((line) => known.has(seqOf(line)));
  if (!overlaps) {
    replaceAll(answer.lines);
    setBefore(answer.before);
    return;
  }
  let at = first.firstElementChild;
  for (const line of answer.lines) {
    const old = known.get(seqOf(line));
    if (!old) {
      line.classList.add("new");
      first.insertBefore(line, at);
    } else {
      if (old.innerHTML !== line.innerHTML) {
        const focused = old.contains(document.activeElement);
        old.replaceWith(line);
        if (focused) line.firstElementChild.focus();
        at = line.nextElementSibling;
      } else at = old.nextElementSibling;
    }
  }
  if (first.childElementCount > MAX_FIRST) first.after(list([...first.children].slice(MAX_FIRST / 2)));
  while (rows.childElementCount > MAX_LISTS) {
    rows.lastElementChild.remove();
    setBefore(rows.lastElementChild.lastElementChild.dataset.seq);
  }
}

async function refreshList() {
  const params = query();
  if (new URLSearchParams(location.search).has("before")) return; // an old page stays as it is
  const answer = await ask(params, true);
  if (!answer) return;
  merge(answer);
  document.getElementById("none").hidden = rows.firstElementChild.childElementCount > 0;
}

async function refreshFleet() {
  const response = await fetch(location.href);
  if (!response.ok) return;
  const fresh = parse(await response.text()).getElementById("fleet");
  const shown = document.getElementById("fleet");
  if (fresh && !shown.contains(document.activeElement) && !shown.matches(":hover")) shown.replaceWith(fresh);
}

let isBusy = false;
let isStale = false;

// At most one question at a time, and none sooner than the interval after the last.
async function refresh() {
  if (isBusy) { isStale = true; return; }
  isBusy = true;
  isStale = false;
  try {
    await (kind === "list" ? refreshList() : refreshFleet());
  } catch { say(false); }
  setTimeout(() => { isBusy = false; if (isStale) refresh(); }, kind === "list" ? MIN_REFRESH_MS : 2000);
}

function say(isLive) {
  live.hidden = false;
  live.textContent = isLive ? "live" : "not connected";
  live.classList.toggle("off", !isLive);
}

let events = null;
function listen() {
  if (events || document.hidden || (kind !== "list" && kind !== "fleet")) return;
  events = new EventSource("/events");
  events.onopen = () => say(true);
  events.onmessage = refresh;
  events.onerror = () => say(false);
}

// A browser has six connections to a host: tabs that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) { listen(); return; }
  events?.close();
  events = null;
});

async function applyFilters() {
  const params = query();
  generation += 1;
  etag = "";
  history.replaceState(null, "", params.size ? `/?${params}` : "/");
  document.getElementById("clear").hidden = !params.size;
  const answer = await ask(params, true);
  if (!answer) return;
  replaceAll(answer.lines);
  setBefore(answer.before);
  const none = document.getElementById("none");
  none.textContent = params.size ? "No request matches these filters." : "No request has been traced yet.";
  none.hidden = answer.lines.length > 0;
}

let isLoading = false;
async function loadOlder() {
  if (isLoading || older.hidden) return;
  isLoading = true;
  try {
    const params = query();
    params.set("before", older.dataset.before);
    const answer = await ask(params, false);
    if (!answer) return;
    rows.append(list(answer.lines));
    setBefore(answer.before);
  } finally { isLoading = false; }
  loadIfNear();
}

// The reader's own scrolling asks for more; a page that is short from the start does not. Where the end of the
// list is gets looked at, at each scroll and after each page: an observer tells of changes only, and says nothing
// to a reader who is at the end again before the next frame.
function loadIfNear() {
  if (scrollY > 0 && older.getBoundingClientRect().top < innerHeight + NEAR_PX) loadOlder().catch(() => say(false));
}

if (kind === "list") {
  let timer = 0;
  form.addEventListener("submit", (event) => { event.preventDefault(); applyFilters(); });
  form.addEventListener("change", applyFilters);
  form.elements.q.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(applyFilters, 150); });
  older.addEventListener("click", (event) => { event.preventDefault(); loadOlder().catch(() => say(false)); });
  addEventListener("scroll", loadIfNear, { passive: true });
}
if (kind === "fleet") form.addEventListener("change", () => form.requestSubmit());
listen();

// Escape leads back to where the reader came from, with its filters.
if (kind === "list" || kind === "fleet") {
  addEventListener("pagehide", () => sessionStorage.setItem("came from", location.pathname + location.search));
}

// Keys. None is taken while somebody types.
function stops() {
  return [...document.querySelectorAll(".rows a, details.span > summary")];
}

function move(step) {
  const all = stops();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement.closest?.(".rows a, details.span > summary"));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

const help = document.getElementById("help");
const keys = document.getElementById("keys");
help.hidden = false;
help.addEventListener("click", () => keys.showModal());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  const isTyping = event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea");
  if (event.key === "Escape") {
    if (isTyping || (form && form.contains(event.target))) event.target.blur();
    else if (kind === "waterfall" || kind === "missing") location.assign(sessionStorage.getItem("came from") || "/");
    return;
  }
  if (isTyping) return;
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => form?.elements.q ? form.elements.q.focus() : location.assign("/"),
    "?": () => keys.showModal(),
    r: () => location.assign("/"),
    f: () => location.assign("/fleet"),
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
});
