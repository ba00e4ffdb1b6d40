// The translation, sentence by sentence: what each and its words are the translation of, and its alternatives.

import { element, find } from "./server.js";

let asked = []; // the lines that were translated
let answers = []; // of each line: { sentences, gaps }
let chosen = []; // of each sentence of each line: which candidate is shown
let spans = []; // of all sentences: { span, words, line, place, of }; `of` is { span, words } in the text
let current = -1; // which of these is looked at
let word = -1; // and which of its words; -1 = none

const candidatesOf = (sentence) => sentence.candidates ?? [sentence];

/** Show the answers to lines in a language. */
export function show(lines, translations, language) {
  asked = lines;
  answers = translations.map((one) => (one.sentences ? one : { sentences: [], gaps: [one.text] }));
  chosen = answers.map((answer) => answer.sentences.map(() => 0));
  find("result").lang = language;
  showResult();
  showAlternatives();
}

function chosenOf(line, place) {
  return candidatesOf(answers[line].sentences[place])[chosen[line][place]];
}

/** A sentence, its words in spans if they are linked to others. */
function sentenceOf(text, aligned) {
  const span = element("span", aligned ? "" : text, { class: "sentence" });
  if (!aligned) return { span, words: [] };
  const parts = text.split(/(\s+)/).map((part) => (part.trim() ? element("span", part, { class: "word" }) : part));
  span.append(...parts);
  return { span, words: parts.filter((part) => typeof part !== "string") };
}

function showResult() {
  const nodes = [];
  spans = [];
  current = word = -1;
  answers.forEach(({ sentences, gaps }, line) => {
    nodes.push((line ? "\n" : "") + gaps[0]);
    sentences.forEach((sentence, place) => {
      const { text, alignment } = chosenOf(line, place);
      const made = sentenceOf(text, alignment);
      if (sentence.untranslated) made.span.title = "Too long for the model: it stays as it is.";
      spans.push({ ...made, line, place });
      nodes.push(made.span, gaps[place + 1]);
    });
  });
  find("result").replaceChildren(...nodes);
  find("copy").disabled = !answers.length;
  showText();
}

/** Lay the text out behind itself, so that its sentences and words can be marked. */
function showText() {
  const text = find("text").value;
  const nodes = [];
  let at = 0;
  if (text === asked.join("\n")) {
    for (const one of spans) {
      const { source, alignment } = { ...answers[one.line].sentences[one.place], ...chosenOf(one.line, one.place) };
      const begin = text.indexOf(source, at);
      if (begin < 0) continue;
      one.of = sentenceOf(source, alignment);
      nodes.push(text.slice(at, begin), one.of.span);
      at = begin + source.length;
    }
  }
  find("marks").replaceChildren(...nodes, `${nodes.length ? text.slice(at) : ""} `);
  layMarks();
}

/** The text was changed: what is marked in it is no longer there. */
export function forgetText() {
  mark(-1);
  for (const one of spans) delete one.of;
  find("marks").replaceChildren();
}

function showAlternatives() {
  const items = spans.flatMap(({ line, place }) => {
    const sentence = answers[line].sentences[place];
    if (candidatesOf(sentence).length < 2) return [];
    const item = element("li", "", { "data-line": line, "data-place": place });
    const list = element("ul", "", { "aria-label": sentence.source });
    list.append(...sentence.candidates.map((candidate, rank) => alternative(candidate, line, place, rank)));
    item.append(element("p", sentence.source, { class: "of", dir: "auto" }), list);
    return [item];
  });
  find("lines").replaceChildren(...items);
  find("others").hidden = !items.length;
}

function alternative(candidate, line, place, rank) {
  const button = element("button", "", { type: "button", "aria-pressed": chosen[line][place] === rank });
  button.append(
    element("span", candidate.text, { class: "said", dir: "auto", lang: find("result").lang }),
    element("span", candidate.score.toFixed(2), { class: "score", title: "score" }),
  );
  button.addEventListener("click", () => {
    chosen[line][place] = rank;
    for (const other of button.closest("ul").querySelectorAll("button"))
      other.setAttribute("aria-pressed", other === button);
    showResult();
  });
  const item = element("li", "");
  item.append(button);
  return item;
}

/** The words of a sentence that belong to one of the translation, or of the text: [text, translation]. */
function linksOf(number, own, side) {
  const { line, place } = spans[number];
  return chosenOf(line, place).alignment.filter((link) => link[side] === own);
}

/** Mark a sentence, and what it is the translation of; of both the words that a word belongs to. None with -1. */
function mark(number, own = -1, side = 1) {
  for (const one of document.querySelectorAll(".marked, .linked")) one.classList.remove("marked", "linked");
  current = number;
  word = side === 1 ? own : -1;
  if (number < 0) return;
  const { span, words, of } = spans[number];
  span.classList.add("marked");
  of?.span.classList.add("marked");
  if (own < 0) return;
  const sides = [of?.words ?? [], words];
  sides[side][own]?.classList.add("marked");
  for (const link of linksOf(number, own, side)) sides[1 - side][link[1 - side]]?.classList.add("linked");
}

/** Put the marks behind the text, wherever that is scrolled to. */
export function layMarks() {
  const [marks, text] = [find("marks"), find("text")];
  marks.style.width = `${text.clientWidth}px`;
  marks.style.height = `${text.clientHeight}px`;
  marks.scrollTop = text.scrollTop;
}

function alternativesOf(number) {
  const { line, place } = spans[number];
  return find("lines").querySelector(`[data-line="${line}"][data-place="${place}"]`);
}

/** Go on by so many sentences, with the keyboard. */
function step(by) {
  if (!spans.length) return;
  const next = current < 0 ? (by > 0 ? 0 : spans.length - 1) : current + by;
  mark(Math.min(Math.max(next, 0), spans.length - 1));
  const { span, line, place } = spans[current];
  span.scrollIntoView({ block: "nearest" });
  const { source } = answers[line].sentences[place];
  find("spoken").textContent = `Sentence ${current + 1} of ${spans.length}: ${span.textContent}. Of: ${source}`;
}

/** Go on by a word; by a sentence where words are not linked. */
function stepWord(by) {
  const places = spans.flatMap(({ words }, number) => words.map((_, own) => [number, own]));
  if (!places.length) {
    step(by);
    return;
  }
  let at = places.findIndex(([number, own]) => number === current && own === word);
  if (at < 0) at = places.findIndex(([number]) => number === current) - (by > 0 ? 1 : 0);
  if (current < 0) at = by > 0 ? -1 : places.length;
  const [number, own] = places[Math.min(Math.max(at + by, 0), places.length - 1)];
  mark(number, own);
  const { words, line, place } = spans[number];
  words[own].scrollIntoView({ block: "nearest" });
  const said = answers[line].sentences[place].source.split(/\s+/).filter(Boolean);
  const from = linksOf(number, own, 1).map(([one]) => said[one]).join(" ");
  find("spoken").textContent = `${words[own].textContent}. Of: ${from || "nothing"}`;
}

function openAlternatives(number) {
  const item = alternativesOf(number);
  item?.scrollIntoView({ block: "nearest" });
  item?.querySelector("[aria-pressed=true]").focus({ preventScroll: true });
}

const STEPS = { ArrowDown: 1, ArrowUp: -1 };
const WORDS = { ArrowRight: 1, ArrowLeft: -1 };

/** Mark what is under the pointer, or at the cursor, in the text. */
function lookInText(found) {
  const number = spans.findIndex(({ of }) => of && found.includes(of.span));
  mark(number, number < 0 ? -1 : spans[number].of.words.findIndex((one) => found.includes(one)), 0);
}

/** The sentence and the word of the text that the cursor is in. */
function atCursor() {
  const place = find("text").selectionStart;
  let at = 0;
  const found = [];
  for (const node of find("marks").childNodes) {
    const end = at + node.textContent.length;
    if (node.nodeType === Node.ELEMENT_NODE && at <= place && place <= end) {
      found.push(node);
      for (const part of node.childNodes) {
        const stop = at + part.textContent.length;
        if (part.nodeType === Node.ELEMENT_NODE && at <= place && place <= stop) found.push(part);
        at = stop;
      }
    }
    at = end;
  }
  return found;
}

export function listen() {
  const [result, text] = [find("result"), find("text")];
  const numberOf = (event) => spans.findIndex(({ span }) => span === event.target.closest(".sentence"));
  result.addEventListener("mouseover", (event) => {
    const number = numberOf(event);
    mark(number, number < 0 ? -1 : spans[number].words.indexOf(event.target));
  });
  for (const side of [result, text]) {
    side.addEventListener("mouseleave", () => mark(-1));
    side.addEventListener("blur", () => mark(-1));
  }
  result.addEventListener("click", (event) => {
    const number = numberOf(event);
    if (number >= 0 && getSelection().isCollapsed) openAlternatives(number);
  });
  result.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (STEPS[event.key] || WORDS[event.key]) {
      event.preventDefault();
      if (STEPS[event.key]) step(STEPS[event.key]);
      else stepWord(WORDS[event.key]);
    } else if (event.key === "Enter" && current >= 0) {
      event.preventDefault();
      openAlternatives(current);
    }
  });
  text.addEventListener("scroll", layMarks);
  text.addEventListener("input", forgetText);
  text.addEventListener("mousemove", (event) => lookInText(document.elementsFromPoint(event.clientX, event.clientY)));
  text.addEventListener("keyup", (event) => {
    if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") lookInText(atCursor());
  });
  new ResizeObserver(layMarks).observe(text);
}
