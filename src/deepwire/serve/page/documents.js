// Documents that are dropped or chosen: sent as they are, and saved when they come back.

import { element, find, say, send } from "./server.js";

/** The name that the server gives a document. */
function nameOf(answer, otherwise) {
  const name = /filename\*=utf-8''([^;]+)/i.exec(answer.headers.get("Content-Disposition") ?? "");
  return name ? decodeURIComponent(name[1]) : otherwise;
}

/** Beginnings of what the server left as it is in a document. */
function leftIn(answer) {
  const beginnings = (answer.headers.get("Deepwire-Untranslated") ?? "").split(", ").filter(Boolean);
  return beginnings.map(decodeURIComponent).join(", ");
}

async function translate(file, languages) {
  const control = new AbortController();
  const item = element("li", "");
  const state = element("span", "is being translated …", { class: "quiet" });
  const stop = element("button", "Stop", { type: "button", "aria-label": `Stop translating ${file.name}` });
  stop.addEventListener("click", () => control.abort());
  item.append(element("span", file.name, { class: "name" }), state, stop);
  find("file-list").append(item);
  find("files").hidden = false;
  try {
    const query = new URLSearchParams({ name: file.name, ...languages });
    const answer = await send(`translate_file?${query}`, { method: "POST", body: file, signal: control.signal });
    const name = nameOf(answer, file.name);
    const left = leftIn(answer);
    const href = URL.createObjectURL(await answer.blob());
    state.replaceWith(element("a", `Save ${name}`, { href, download: name, class: "button" }));
    if (left) item.append(element("span", `too long for the model, left as it is: ${left}`, { class: "wrong" }));
  } catch (error) {
    state.className = control.signal.aborted ? "quiet" : "wrong";
    state.textContent = control.signal.aborted ? "stopped" : error.message;
  }
  stop.remove();
}

/** Translate files one after the other: they would only wait for each other. */
async function translateAll(files, facts, languages) {
  for (const file of files) {
    const known = facts.files.some((ending) => file.name.toLowerCase().endsWith(ending));
    if (!known) say("", `${file.name}: documents end in ${facts.files.join(", ")}`);
    else await translate(file, languages);
  }
}

/** Take documents; `current` gives what is known of the server, and the chosen languages. */
export function listen(current) {
  const take = (files) => {
    const { facts, languages } = current();
    if (!facts?.files.length) return;
    say("");
    translateAll([...files], facts, languages);
  };
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  const input = find("file");
  input.addEventListener("change", () => {
    take(input.files);
    input.value = "";
  });
  addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault(); // else the browser would leave the page and open the file
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!holdsFiles(event)) return;
    event.preventDefault();
    take(event.dataTransfer.files);
  });
}
