// What the page asks the server, and what it says of it. Nothing that comes from the server or the user is put
// into the page as HTML: all of it is text.

const TRIES = 4;
const api = document.documentElement.dataset.api ?? ""; // where the interface of deepwire is

export const find = (id) => document.getElementById(id);
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export function say(status, problem = "") {
  find("status").textContent = status;
  find("problem").textContent = problem;
}

export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code.replaceAll("_", "-"));
  } catch {
    return code;
  }
}

function authorization() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** An answer; waits and asks again where the server says so. */
export async function send(path, options = {}, tries = TRIES) {
  const answer = await fetch(api + path, { ...options, headers: { ...authorization(), ...options.headers } });
  if (answer.ok) return answer;
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
    return send(path, options, tries - 1);
  }
  const body = await answer.json().catch(() => null);
  const error = new Error(body?.error?.message ?? `the server answers with status ${answer.status}`);
  error.index = body?.error?.index;
  throw error;
}

/** The JSON of an answer; `body` is sent as JSON. */
export async function ask(path, body, signal) {
  const options = { signal };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  return (await send(path, options)).json();
}
