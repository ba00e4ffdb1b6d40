"use strict";

// Everything that comes from the server or the user is put into the page as text, never as HTML.

const find = (id) => document.getElementById(id);
const PAUSE = 500; // milliseconds without a key after which the text is translated
const TRIES = 4;
const KEPT = 2000; // lines whose translations are remembered

const api = document.documentElement.dataset.api ?? ""; // where the interface of deepwire is

let facts = null;
let answers = []; // of each line: the candidates, best first
let chosen = []; // of each line: which of them is shown
let known = { settings: "", found: new Map() }; // what the server has said to each line, with the same settings
let running = null;
let timer = 0;

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const lines = () => find("text").value.split("\n");

function say(status, problem = "") {
  find("status").textContent = status;
  find("problem").textContent = problem;
}

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code.replaceAll("_", "-"));
  } catch {
    return code;
  }
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** The JSON of an answer; waits and asks again where the server says so. */
async function ask(path, options = {}, tries = TRIES) {
  const answer = await fetch(api + path, { ...options, headers: { ...headers(), ...options.headers } });
  if (answer.status === 401) {
    const wrong = sessionStorage.getItem("token") !== null;
    sessionStorage.removeItem("token");
    find("access").hidden = false;
    find("token").focus();
    throw new Error(wrong ? "That is not the token of this server." : "");
  }
  const wait = Number(answer.headers.get("Retry-After"));
  if ((answer.status === 429 || answer.status === 503) && wait && tries > 1) {
    say(`The server is busy; asking again in ${wait} s …`);
    await sleep(wait * 1000);
    options.signal?.throwIfAborted();
    return ask(path, options, tries - 1);
  }
  const body = await answer.json().catch(() => null);
  if (answer.ok && body) return body;
  const error = new Error(body?.error?.message ?? `the server answers with status ${answer.status}`);
  error.index = body?.error?.index;
  throw error;
}

/** Offer the languages that go with the other side; a model of one direction offers none. */
function offerLanguages() {
  const { several, sources, targets, directions } = facts.languages;
  for (const [id, names] of [["source", sources], ["target", targets]]) {
    const options = names.map((code) => element("option", languageName(code), { value: code }));
    find(id).replaceChildren(...options);
    find(id).hidden = !several;
    find(`${id}-name`).textContent = several ? "" : names.map(languageName).join(", ");
  }
  find("swap").hidden = !several;
  if (directions.length) [find("source").value, find("target").value] = directions[0];
}

function offerAlternatives() {
  const most = Math.min(facts.limits.beam, 8);
  const options = [element("option", "none", { value: 1 })];
  for (let count = 2; count <= most; count += 1) options.push(element("option", count, { value: count }));
  find("alternatives").replaceChildren(...options);
}

async function open() {
  try {
    facts = await ask("languages");
  } catch (error) {
    say("", error.message);
    return;
  }
  find("access").hidden = true;
  find("model").textContent = `with ${facts.model}`;
  offerLanguages();
  offerAlternatives();
  say("");
  count();
}

function count() {
  const longest = Math.max(...lines().map((line) => [...line].length));
  const most = facts?.limits.characters ?? Infinity;
  find("count").textContent = longest > most ? `a line has ${longest} characters, at most ${most}` : "";
}

/** What is asked for besides the texts. */
function settings() {
  const body = {};
  if (facts.languages.several) {
    body.target = find("target").value;
    body.source = find("source").value;
  }
  const alternatives = Number(find("alternatives").value);
  if (alternatives > 1) {
    body.n_best = alternatives;
    body.beam = Math.max(alternatives, facts.beam);
  }
  return body;
}

/** The translations of lines; only what is not known yet is asked for. */
async function answersTo(texts, signal) {
  const asked = settings();
  const name = JSON.stringify(asked);
  if (known.settings !== name || known.found.size > KEPT) known = { settings: name, found: new Map() };
  const found = known.found;
  const missing = [...new Set(texts)].filter((text) => text.trim() && !found.has(text));
  for (let first = 0; first < missing.length; first += facts.limits.texts) {
    const some = missing.slice(first, first + facts.limits.texts);
    const body = JSON.stringify({ ...asked, texts: some });
    const headers = { "Content-Type": "application/json" };
    try {
      const answer = await ask("translate", { method: "POST", body, headers, signal });
      some.forEach((text, place) => found.set(text, answer.translations[place]));
    } catch (error) {
      if (error.index !== undefined) error.line = texts.indexOf(some[error.index]) + 1;
      throw error;
    }
  }
  return texts.map((text) => found.get(text) ?? { text: "" });
}

/** Translate what is there now; what was being translated is given up. */
async function translate() {
  clearTimeout(timer);
  running?.abort();
  if (!facts) return;
  const texts = lines();
  if (!find("text").value.trim()) {
    show([]);
    say("");
    find("work").removeAttribute("aria-busy");
    return;
  }
  const control = new AbortController();
  running = control;
  find("work").setAttribute("aria-busy", "true");
  say("Translating …");
  try {
    show(await answersTo(texts, control.signal));
    say("");
  } catch (error) {
    if (control.signal.aborted) return;
    show([]); // what stands there is of another text
    const where = error.line ? `Line ${error.line}: ` : "";
    say("", where + error.message.replace(/^text \d+: /, ""));
  } finally {
    if (running === control) find("work").removeAttribute("aria-busy");
  }
}

function show(translations) {
  answers = translations.map((one) => one.candidates ?? [one]);
  chosen = answers.map(() => 0);
  find("result").lang = facts?.languages.several ? find("target").value : (facts?.languages.targets[0] ?? "");
  showResult();
  showAlternatives();
}

function showResult() {
  find("result").textContent = answers.map((candidates, line) => candidates[chosen[line]].text).join("\n");
  find("copy").disabled = !answers.length;
}

function showAlternatives() {
  const items = [];
  answers.forEach((candidates, line) => {
    if (candidates.length < 2) return;
    const item = element("li", answers.length > 1 ? `Line ${line + 1}` : "");
    const list = element("ul", "");
    list.append(...candidates.map((candidate, place) => alternative(candidate, line, place)));
    item.append(list);
    items.push(item);
  });
  find("lines").replaceChildren(...items);
  find("others").hidden = !items.length;
}

function alternative(candidate, line, place) {
  const button = element("button", "", { type: "button", "aria-pressed": chosen[line] === place });
  button.append(
    element("span", candidate.text, { class: "said", dir: "auto", lang: find("result").lang }),
    element("span", candidate.score.toFixed(2), { class: "score", title: "score" }),
  );
  button.addEventListener("click", () => {
    chosen[line] = place;
    for (const other of button.closest("ul").querySelectorAll("button"))
      other.setAttribute("aria-pressed", other === button);
    showResult();
  });
  const item = element("li", "");
  item.append(button);
  return item;
}

async function copy() {
  const text = find("result").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https there is no clipboard for scripts; the selection still is.
    getSelection().selectAllChildren(find("result"));
    if (!document.execCommand("copy")) {
      say("", "The browser does not let the page copy: the translation is selected, press Ctrl C.");
      return;
    }
  }
  find("copy").textContent = "Copied";
  setTimeout(() => (find("copy").textContent = "Copy"), 1500);
}

function swap() {
  const [source, target] = [find("source"), find("target")];
  const [from, to] = [target.value, source.value];
  const known = ([...source.options].some((one) => one.value === from) &&
    [...target.options].some((one) => one.value === to));
  if (!known) {
    say("", `The model does not translate from ${languageName(from)} to ${languageName(to)}.`);
    return;
  }
  [source.value, target.value] = [from, to];
  if (answers.length) find("text").value = find("result").textContent;
  translate();
}

const darkSystem = matchMedia("(prefers-color-scheme: dark)");

/** The theme that is not shown: what the button leads to. */
function otherTheme() {
  const shown = document.documentElement.dataset.theme ?? (darkSystem.matches ? "dark" : "light");
  return shown === "dark" ? "light" : "dark";
}

function nameTheme() {
  find("theme").textContent = otherTheme() === "dark" ? "Dark theme" : "Light theme";
}

find("work").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value.trim());
  find("token").value = "";
  open();
});
find("text").addEventListener("input", () => {
  count();
  clearTimeout(timer);
  if (find("typing").checked) timer = setTimeout(translate, PAUSE);
});
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    translate();
  } else if (event.key === "Escape") {
    find("text").value = "";
    count();
    translate();
  }
});
for (const id of ["source", "target", "alternatives"]) find(id).addEventListener("change", translate);
find("copy").addEventListener("click", copy);
find("swap").addEventListener("click", swap);
find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = otherTheme();
  nameTheme();
});
darkSystem.addEventListener("change", nameTheme);
nameTheme();
open();
