// The translation, sentence by sentence: what each is the translation of, and its alternatives.

import { element, find } from "./server.js";

let asked = []; // the lines that were translated
let answers = []; // of each line: { sentences, gaps }
let chosen = []; // of each sentence of each line: which candidate is shown
let spans = []; // of all sentences: { span, line, place }
let current = -1; // which of these is looked at

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

function textOf(line, place) {
  return candidatesOf(answers[line].sentences[place])[chosen[line][place]].text;
}

function showResult() {
  const nodes = [];
  spans = [];
  current = -1;
  answers.forEach(({ sentences, gaps }, line) => {
    nodes.push((line ? "\n" : "") + gaps[0]);
    sentences.forEach((sentence, place) => {
      const span = element("span", textOf(line, place), { class: "sentence" });
      if (sentence.untranslated) span.title = "Too long for the model: it stays as it is.";
      spans.push({ span, line, place });
      nodes.push(span, gaps[place + 1]);
    });
  });
  find("result").replaceChildren(...nodes);
  find("copy").disabled = !answers.length;
  mark(-1);
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

/** Where each sentence of a line stands in it: [begin, end]. */
function placesIn(line) {
  let at = 0;
  return answers[line].sentences.map(({ source }) => {
    const begin = asked[line].indexOf(source, at);
    if (begin < 0) return [at, at];
    at = begin + source.length;
    return [begin, at];
  });
}

/** Mark a sentence, and what it is the translation of; none with -1. */
function mark(number) {
  spans[current]?.span.classList.remove("marked");
  current = number;
  const marks = find("marks");
  marks.replaceChildren();
  if (number < 0) return;
  const { span, line, place } = spans[number];
  span.classList.add("marked");
  const text = find("text").value;
  if (text !== asked.join("\n")) return; // it was changed since
  const [begin, end] = placesIn(line)[place];
  const start = asked.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
  marks.append(text.slice(0, start + begin), element("mark", text.slice(start + begin, start + end)), `${text.slice(start + end)} `);
  layMarks();
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

function openAlternatives(number) {
  const item = alternativesOf(number);
  item?.scrollIntoView({ block: "nearest" });
  item?.querySelector("[aria-pressed=true]").focus({ preventScroll: true });
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function listen() {
  const result = find("result");
  const numberOf = (event) => spans.findIndex(({ span }) => span === event.target.closest(".sentence"));
  result.addEventListener("mouseover", (event) => mark(numberOf(event)));
  result.addEventListener("mouseleave", () => mark(-1));
  result.addEventListener("blur", () => mark(-1));
  result.addEventListener("click", (event) => {
    const number = numberOf(event);
    if (number >= 0 && getSelection().isCollapsed) openAlternatives(number);
  });
  result.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (STEPS[event.key]) {
      event.preventDefault();
      step(STEPS[event.key]);
    } else if (event.key === "Enter" && current >= 0) {
      event.preventDefault();
      openAlternatives(current);
    }
  });
  find("text").addEventListener("scroll", layMarks);
}
