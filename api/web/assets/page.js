// Keys, copy buttons and pages that renew themselves. Everything works without it.
// @ts-check
const policy = window.trustedTypes?.createPolicy("benchlock", { createHTML: (/** @type {string} */ text) => text });

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input, textarea, select, dialog") !== null;
}

/** @param {number} step */
function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr")];
  const current = rows.findIndex((row) => row.hasAttribute("aria-current"));
  const next = rows[Math.min(Math.max(current + step, 0), rows.length - 1)];
  rows[current]?.removeAttribute("aria-current");
  next?.setAttribute("aria-current", "true");
  next?.scrollIntoView({ block: "nearest" });
  next?.querySelector("a")?.focus({ preventScroll: true });
}

const KEYS = [["/", "Search"], ["j", "Next row"], ["k", "Previous row"], ["Enter", "Open the row, or zoom into the part of a trace"], ["Arrows", "Move between the parts of a trace"], ["Escape", "Zoom out"], ["?", "This list"], ["x", "Turn these keys on or off"]];

function showKeys() {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Keys");
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [key, meaning] of KEYS) {
    const term = document.createElement("dt");
    const text = document.createElement("dd");
    term.textContent = key;
    text.textContent = meaning;
    list.append(term, text);
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(list, close);
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (event.key === "x") localStorage.setItem("keys", localStorage.getItem("keys") === "off" ? "on" : "off");
  if (localStorage.getItem("keys") === "off") return;
  if (event.key === "/") {
    event.preventDefault();
    /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus();
  } else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "?") showKeys();
});

/** @param {ParentNode} part */
function addCopyButtons(part) {
  for (const block of part.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.className = "plain";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.textContent?.trim() ?? "");
      button.textContent = "Copied";
    });
    block.after(button);
  }
}

addCopyButtons(document);

const MOVES = /** @type {Record<string, number[]>} */ ({ ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [1, 1], ArrowUp: [-1, -1] });

/** Let arrows move between the rectangles of an icicle, and Escape go out; Enter opens the links that they are.
 * @param {HTMLElement} figure */
function addKeys(figure) {
  const parts = /** @type {SVGElement[]} */ ([...figure.querySelectorAll("[data-level]")]);
  /** @param {SVGElement} part */
  const choose = (part) => {
    for (const other of parts) other.setAttribute("tabindex", other === part ? "0" : "-1");
  };
  if (!parts[0]) return;
  choose(parts[0]);
  figure.addEventListener("focusin", (event) => {
    const caption = figure.querySelector("figcaption");
    const label = /** @type {Element} */ (event.target).getAttribute("aria-label");
    if (caption && label) caption.textContent = label;
  });
  figure.addEventListener("keydown", (event) => {
    if (event.key === "Escape") /** @type {HTMLElement | null} */ (document.querySelector("[data-out]"))?.click();
    if (!(event.key in MOVES) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [step, deeper] = MOVES[event.key];
    const from = parts.findIndex((part) => part === document.activeElement);
    const level = Number(parts[from]?.dataset.level);
    let next = from + step;
    /** @param {number} other */
    const isBeyond = (other) => (deeper ? other > level + deeper : other !== level);
    while (parts[next] && isBeyond(Number(parts[next].dataset.level))) next += step;
    if (Number(parts[next]?.dataset.level) !== level + deeper) return;
    choose(parts[next]);
    parts[next].focus();
  });
  const enter = () => parts.find((part) => part.getAttribute("tabindex") === "0")?.focus();
  figure.addEventListener("focus", enter); // a browser focuses the target of an address, before or after this script
  if (document.activeElement === figure) enter();
}

for (const figure of document.querySelectorAll("[data-icicle]")) addKeys(/** @type {HTMLElement} */ (figure));

/** @param {string} address @returns {Promise<Document | null>} */
async function load(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" } }).catch(() => null);
  if (!answer?.ok) return null;
  const text = await answer.text();
  return new DOMParser().parseFromString(/** @type {string} */ (policy ? policy.createHTML(text) : text), "text/html");
}

async function replaceMain() {
  const main = document.querySelector("main");
  if (document.hidden || document.activeElement?.closest("main form")) return false;
  const page = await load(location.href);
  const next = page?.querySelector("main");
  if (!page || !main || !next) return false;
  const focused = main.contains(document.activeElement) ? document.activeElement?.outerHTML : null;
  main.replaceWith(next);
  addCopyButtons(next);
  showElapsed();
  const successors = [.../** @type {NodeListOf<HTMLElement>} */ (focused ? next.querySelectorAll("*") : [])];
  successors.find((one) => one.outerHTML === focused)?.focus({ preventScroll: true });
  document.body.dataset.refresh = page.body.dataset.refresh ?? "";
  return true;
}

/** @type {EventSource | null} */
let stream = null;
let isOutdated = false; // a change was not shown, because the reader was in a form or the page did not load

/** Add a line of progress, unless the page has it already. @param {MessageEvent} event */
function addLine(event) {
  const log = document.querySelector("ol.log");
  const number = Number(event.lastEventId);
  if (!log || number <= lastNumber()) return;
  const { text, done, total } = JSON.parse(event.data);
  const line = document.createElement("li");
  line.value = number;
  line.textContent = text;
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(line);
  while (log.childElementCount > 200) log.firstElementChild?.remove();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  const now = document.querySelector("[data-now]");
  const bar = document.querySelector("main progress");
  if (now) now.textContent = text;
  if (bar instanceof HTMLProgressElement) [bar.max, bar.value] = total ? [total, done] : [1, 0];
}

function lastNumber() {
  return /** @type {HTMLLIElement | null} */ (document.querySelector("ol.log > li:last-child"))?.value ?? 0;
}

/** Follow the job of the page, if it has one: one stream, and none while nobody sees the page. */
function watch() {
  stream?.close();
  stream = null;
  const part = /** @type {HTMLElement | null} */ (document.querySelector("[data-events]"));
  if (!part || document.hidden) return;
  const address = new URL(part.dataset.events ?? "", location.href);
  address.searchParams.set("after", String(lastNumber()));
  stream = new EventSource(address);
  stream.addEventListener("line", addLine);
  stream.addEventListener("state", (event) => event.data === part.dataset.key || refresh());
  stream.addEventListener("done", () => {
    stream?.close();
    refresh();
  });
}

async function refresh() {
  isOutdated = !(await replaceMain());
  if (!isOutdated) watch();
}

document.addEventListener("focusout", () => setTimeout(() => isOutdated && refresh())); // later: the focus moves first

/** Renew the page until it ends: at once with each change of its job, and at intervals where no events tell it all. */
async function renew() {
  watch();
  document.addEventListener("visibilitychange", watch);
  for (let seconds; (seconds = Number(document.body.dataset.refresh)); ) {
    const isOpen = () => stream?.readyState === EventSource.OPEN;
    await new Promise((resolve) => setTimeout(resolve, 1000 * (isOpen() ? seconds : 1)));
    if (isOutdated || !isOpen() || !document.querySelector("ol.log")) await refresh();
  }
  stream?.close();
}

const UNITS = /** @type {[string, number, string, number][]} */ ([["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]);

/** Describe a duration in its two largest units, as the service does. @param {number} seconds */
function describeSeconds(seconds) {
  const whole = Math.round(seconds);
  for (const [name, size, rest, small] of UNITS) {
    if (whole >= size) return `${Math.floor(whole / size)} ${name} ${Math.floor((whole % size) / small)} ${rest}`;
  }
  return `${whole} s`;
}

/** Show the time since each start, which is kept once: a browser calls this rarely while nobody sees the page. */
function showElapsed() {
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-elapsed]"))) {
    part.dataset.start ??= String(Date.now() - 1000 * Number(part.dataset.elapsed));
    part.textContent = describeSeconds((Date.now() - Number(part.dataset.start)) / 1000);
  }
}

showElapsed();
setInterval(showElapsed, 1000);

renew();

for (const form of document.querySelectorAll("form[data-preview]")) {
  let number = 0;
  let timer = 0;
  form.addEventListener("input", () => {
    const mine = ++number;
    clearTimeout(timer);
    timer = window.setTimeout(async () => {
      const fields = new URLSearchParams(/** @type {any} */ (new FormData(/** @type {HTMLFormElement} */ (form))));
      fields.delete("csrf_token");
      const page = await load(`${location.pathname}?${fields}`);
      if (mine !== number || !page?.querySelector("#preview")) return;
      for (const next of page.querySelectorAll("#preview, [data-choices]")) {
        const part = document.getElementById(next.id);
        if (part?.contains(document.activeElement)) continue;
        if (part instanceof HTMLDetailsElement) /** @type {HTMLDetailsElement} */ (next).open = part.open;
        part?.replaceWith(next);
        addCopyButtons(next);
      }
      document.activeElement?.scrollIntoView({ block: "nearest" }); // parts before it may have another height now
      history.replaceState(null, "", `?${fields}`);
    }, 100);
  });
}
