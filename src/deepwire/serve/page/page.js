// The page: languages, text, and when it is translated.

import * as documents from "./documents.js";
import { ask, element, find, languageName, say } from "./server.js";
import * as translation from "./translation.js";

const PAUSE = 500; // milliseconds without a key after which the text is translated
const KEPT = 2000; // lines whose translations are remembered
const AUTO = "auto";

let facts = null;
let known = { settings: "", found: new Map() }; // what the server has said to each line, with the same settings
let detected = null; // the language that the text was found to be in
let running = null;
let timer = 0;

const lines = () => find("text").value.split("\n");
const shown = () => find("result").textContent;

/** Whether there is a way from one language to another; a model of many is tried in all directions. */
function isPossible(source, target) {
  const { others, directions } = facts.languages;
  if (source === AUTO) return directions.some(([, to]) => to === target);
  return source !== target && (others || directions.some(([from, to]) => from === source && to === target));
}

/** Offer languages; a model of one direction offers none. */
function offerLanguages() {
  const { several, sources, targets, directions } = facts.languages;
  const option = (code) => element("option", languageName(code), { value: code });
  find("source").replaceChildren(...sources.map(option));
  find("target").replaceChildren(...targets.map(option));
  for (const [id, names] of [["source", sources], ["target", targets]]) {
    find(id).hidden = !several;
    find(`${id}-name`).textContent = several ? "" : names.map(languageName).join(", ");
  }
  find("swap").hidden = !several;
  if (directions.length) [find("source").value, find("target").value] = directions[0];
  if (several && facts.detects) find("source").prepend(element("option", "Detect language", { value: AUTO }));
  offerTargets();
}

/** Let only targets be chosen that go with the source. */
function offerTargets() {
  const options = [...find("target").options];
  for (const option of options) option.disabled = !isPossible(find("source").value, option.value);
  if (find("target").selectedOptions[0]?.disabled)
    find("target").value = options.find((option) => !option.disabled)?.value;
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
  find("documents").hidden = !facts.files.length;
  find("file").accept = facts.files.join(",");
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

/** The chosen languages, as the server wants them. */
function languages() {
  return facts.languages.several ? { source: find("source").value, target: find("target").value } : {};
}

/** What is asked for besides the texts; finds out the language first, of all lines together. */
async function settings(texts, signal) {
  const body = { ...languages(), sentences: true, alignment: facts.alignment };
  detected = null;
  if (body.source === AUTO) {
    const text = texts.filter((line) => line.trim()).join(" ").slice(0, facts.limits.characters);
    const answer = await ask("detect", { text: text, target: body.target }, signal);
    detected = answer.detections[0][0]?.language ?? body.target; // without letters there is nothing to translate
    body.source = detected;
  }
  find("detected").textContent = detected === null ? "" : languageName(detected);
  const alternatives = Number(find("alternatives").value);
  if (alternatives > 1) {
    body.n_best = alternatives;
    body.beam = Math.max(alternatives, facts.beam);
  }
  return body;
}

/** The translations of lines; only what is not known yet is asked for. */
async function answersTo(texts, asked, signal) {
  const name = JSON.stringify(asked);
  if (known.settings !== name || known.found.size > KEPT) known = { settings: name, found: new Map() };
  const found = known.found;
  const missing = [...new Set(texts)].filter((text) => text.trim() && !found.has(text));
  for (let first = 0; first < missing.length; first += facts.limits.texts) {
    const some = missing.slice(first, first + facts.limits.texts);
    try {
      const answer = await ask("translate", { ...asked, texts: some }, signal);
      some.forEach((text, place) => found.set(text, answer.translations[place]));
    } catch (error) {
      if (error.index !== undefined) error.line = texts.indexOf(some[error.index]) + 1;
      throw error;
    }
  }
  return texts.map((text) => found.get(text) ?? { text });
}

/** What is worth saying about the way of a translation. */
function remark({ source, target }) {
  if (source && source === target) return `The text is in ${languageName(target)} already.`;
  const way = facts.languages.through.find(([from, to]) => from === source && to === target);
  return way ? `Translated through ${languageName(way[2])}.` : "";
}

async function translated(texts, signal) {
  const asked = await settings(texts, signal);
  const same = asked.source !== undefined && asked.source === asked.target;
  const found = same ? texts.map((text) => ({ text })) : await answersTo(texts, asked, signal);
  translation.show(texts, found, asked.target ?? facts.languages.targets[0] ?? "");
  say(remark(asked));
}

/** Translate what is there now; what was being translated is given up. */
async function translate() {
  clearTimeout(timer);
  running?.abort();
  if (!facts) return;
  const texts = lines();
  const control = new AbortController();
  running = control;
  if (!find("text").value.trim()) {
    clear();
    return;
  }
  find("work").setAttribute("aria-busy", "true");
  say("Translating …");
  try {
    await translated(texts, control.signal);
  } catch (error) {
    if (control.signal.aborted) return;
    translation.show([], [], ""); // what stands there is of another text
    const where = error.line ? `Line ${error.line}: ` : "";
    say("", where + error.message.replace(/^text \d+: /, ""));
  } finally {
    if (running === control) find("work").removeAttribute("aria-busy");
  }
}

function clear() {
  translation.show([], [], "");
  find("detected").textContent = "";
  say("");
  find("work").removeAttribute("aria-busy");
}

async function copy() {
  try {
    await navigator.clipboard.writeText(shown());
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
  const [from, to] = [target.value, source.value === AUTO ? detected : source.value];
  if (to === null) {
    say("", "It is not known yet from which language: translate something first.");
    return;
  }
  const offered = (list, code) => [...list.options].some((option) => option.value === code);
  if (!offered(source, from) || !offered(target, to) || !isPossible(from, to)) {
    say("", `The model does not translate from ${languageName(from)} to ${languageName(to)}.`);
    return;
  }
  source.value = from;
  offerTargets();
  target.value = to;
  if (shown()) find("text").value = shown();
  translate();
}

const darkSystem = matchMedia("(prefers-color-scheme: dark)");

/** The theme that is not shown: what the button leads to. */
function otherTheme() {
  const current = document.documentElement.dataset.theme ?? (darkSystem.matches ? "dark" : "light");
  return current === "dark" ? "light" : "dark";
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
find("source").addEventListener("change", offerTargets);
for (const id of ["source", "target", "alternatives"]) find(id).addEventListener("change", translate);
find("copy").addEventListener("click", copy);
find("swap").addEventListener("click", swap);
find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = otherTheme();
  nameTheme();
});
darkSystem.addEventListener("change", nameTheme);
nameTheme();
documents.listen(() => ({ facts, languages: facts ? languages() : {} }));
translation.listen();
open();
