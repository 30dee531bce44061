// Requests to this server, and nowhere else. Errors carry what the server says: {error, hint, nearest}.

export class ApiError extends Error {
  constructor(status, { error, hint = "", nearest = [] }) {
    super(error);
    Object.assign(this, { status, hint, nearest });
  }
}

async function send(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (fault) {
    if (fault.name === "AbortError") throw fault; // the view has moved on
    throw new ApiError(0, { error: "The server does not answer", hint: "Is focuse serve still running?" });
  }
  if (answer.ok) return answer.json();
  let told = {};
  try {
    told = await answer.json();
  } catch { /* not even JSON: the status has to do */ }
  throw new ApiError(answer.status, { error: told.error ?? `Error ${answer.status}`, hint: told.hint, nearest: told.nearest });
}

/** The address of a question; parts that are empty are left out. */
export function address(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return `/api/${path}${query ? `?${query}` : ""}`;
}

export const get = (path, parameters, signal) => send(address(path, parameters), { signal });

export const post = (path, body, signal) =>
  send(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** Signals for questions of which only the latest counts: each new one aborts the one before. */
export function successive(signal) {
  let last = null;
  return () => {
    last?.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}

const latest = new WeakMap(); // of each place, the attempt whose answer it waits for

/**
 * Run a request for one place of the page: spinner, then what `show` makes of the answer, or the problem. A table that
 * is there already stays until then, dimmed.
 */
export async function into(place, request, show, { loading, problem }) {
  const attempt = async () => {
    const own = {};
    const isLate = () => latest.get(place) !== own;
    latest.set(place, own);
    place.setAttribute("aria-busy", "true");
    if (!place.querySelector("table")) place.replaceChildren(loading());
    try {
      const answer = await request();
      if (!isLate()) place.replaceChildren(...[show(answer)].flat());
    } catch (error) {
      if (error.name === "AbortError" || isLate()) return;
      if (!(error instanceof ApiError)) console.error(error);
      place.replaceChildren(problem(error, attempt));
    } finally {
      if (!isLate()) place.removeAttribute("aria-busy");
    }
  };
  await attempt();
}
