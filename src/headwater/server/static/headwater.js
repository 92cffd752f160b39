// The browser's side of an application that `headwater run` serves. No build step: import it from "/headwater.js".
//
//   import { connect } from "/headwater.js";
//   const app = connect();
//   const board = app.space("team").piece("Board", "main");
//   board.points.watch(points => ...);            // the value now, then the latest whenever it changed
//   await board.add.send({ column: "todo", title: "Tea" });   // resolves when it is durable; throws Refused or Failed
//   board.likes.increment(1);                     // shown at once, and merged with what others add
//   board.search.bind(document.querySelector("input"));       // both ways; typing is no event
//
// A wrong call (wrong arguments, no such member, a value that is too long) fails alone, with Failed. A lost connection
// comes back by itself: what is looked at is looked at again, and what had no answer is sent again under the same key. A
// page that is refused is over: app.onError(error => ...) hears of it, and what had no answer fails. A token that ends is
// renewed by a function: connect({ token: () => fetch(...).then(...) }).

const VERSION = 1;
const FIRST_DELAY_MS = 250;
const LAST_DELAY_MS = 10_000;
const TYPING_MS = 150;
const CLAIM_MS = 500;

export class Refused extends Error { name = "Refused"; }
export class Failed extends Error { name = "Failed"; }

export function connect(options = {}) {
  return new App(options);
}

const token = () => crypto.randomUUID ? crypto.randomUUID() : [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, "0")).join("");

class App {
  #url; #token; #user; #socket = null; #delay = FIRST_DELAY_MS; #numbers = 0; #isEntered = false; #isClosed = false;
  #mostBytes = Infinity;   // of one message, as the server says
  #looks = new Map();      // number -> { member, text }: what is looked at, and the message that asks for it
  #unanswered = new Map(); // number -> { text, resolve, reject }
  #listeners = new Set();
  #errorListeners = new Set();

  constructor({ url, token: bearer = "", user = "" }) {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.#url = url ?? `${scheme}//${location.host}/v1/page`;
    this.#token = bearer;
    this.#user = user;
    this.group = token();
    this.user = user;
    this.session = sessionStorage.getItem("headwater.session") ?? "";
    this.isOnline = false;
    this.#claimed().then(isOurs => { if (!isOurs) this.session = ""; this.#open(); });
  }

  space(name) { return new Space(this, name); }

  /** Call with true and false as the connection comes and goes. Answers a function that ends it. */
  onConnection(fn) {
    this.#listeners.add(fn);
    fn(this.isOnline);
    return () => this.#listeners.delete(fn);
  }

  /** Call with what ends the connection for good: a token that is refused, a page of another version. */
  onError(fn) {
    this.#errorListeners.add(fn);
    return () => this.#errorListeners.delete(fn);
  }

  close() { this.#end(new Failed("this page closed its connection")); }

  #end(error) {
    this.#isClosed = true;
    this.#socket?.close();
    const unanswered = [...this.#unanswered.values()];
    this.#unanswered.clear();
    for (const { reject } of unanswered) reject(error);
  }

  look(member, group) {
    const id = ++this.#numbers;
    const text = JSON.stringify({ type: "look", id, place: member.place, group });
    this.#looks.set(id, { member, text });
    this.#say(text);
    return id;
  }

  lookAway(id) {
    if (this.#looks.delete(id)) this.#say(JSON.stringify({ type: "look_away", id }));
  }

  /** Say something until it is answered. `made` is called when it was done, before that is durable, and `again` when it
   *  is said again on another connection: nobody knows then whether it was done on the one before. */
  ask(message, { made = null, again = null } = {}) {
    const id = ++this.#numbers;
    if (this.#isClosed) return Promise.reject(new Failed("this page has no connection any more"));
    let text;
    try { text = JSON.stringify({ id, ...message }); }
    catch (error) { return Promise.reject(new Failed(`this cannot be written as JSON: ${error.message}`)); }
    const tooLong = this.#tooLong(text);
    if (tooLong !== null) return Promise.reject(tooLong);
    return new Promise((resolve, reject) => {
      this.#unanswered.set(id, { text, resolve, reject, made, again });
      this.#say(text);
    });
  }

  /** Why a message is not sent, or null. The server ends a connection over one that is much too long. */
  #tooLong(text) {
    if (text.length * 3 <= this.#mostBytes) return null;
    const size = new TextEncoder().encode(text).length;
    return size <= this.#mostBytes ? null : new Failed(`a message of ${size} bytes is over the limit of ${this.#mostBytes}. Send less at once.`);
  }

  /** Whether the session is this window's: a tab that was duplicated has a copy of its name. */
  async #claimed() {
    if (!this.session || !navigator.locks) return true;
    const leave = new AbortController();
    const timer = setTimeout(() => leave.abort(), CLAIM_MS);  // A page that is loaded again may still hold it a moment.
    return new Promise(resolve => {
      navigator.locks.request(`headwater.session.${this.session}`, { signal: leave.signal }, () => {
        clearTimeout(timer);
        resolve(true);
        return new Promise(() => {});  // It is ours for as long as this page is there.
      }).catch(() => resolve(false));
    });
  }

  #open() {
    if (this.#isClosed) return;
    const socket = this.#socket = new WebSocket(this.#url);
    socket.onopen = () => this.#enter(socket);
    socket.onmessage = event => this.#hear(JSON.parse(event.data));
    socket.onclose = () => this.#lost();
  }

  async #enter(socket) {
    try {
      const bearer = typeof this.#token === "function" ? await this.#token() : this.#token;
      const entering = { type: "enter", version: VERSION, token: bearer, session: this.session, user: this.#user };
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(entering));
    } catch (error) {
      console.error("headwater:", error);
      socket.close();  // It is tried again, like every connection that is lost.
    }
  }

  #refused(error) {
    console.error("headwater:", error);
    if (typeof this.#token === "function" && this.#isEntered) return;  // Its time was over: there is another one.
    this.#end(new Failed(error));
    for (const fn of this.#errorListeners) called(fn, new Failed(error));
  }

  #lost() {
    this.#isEntered = false;
    this.#tellOnline(false);
    if (this.#isClosed) return;
    const delay = this.#delay * (0.8 + 0.4 * Math.random());
    this.#delay = Math.min(this.#delay * 2, LAST_DELAY_MS);
    setTimeout(() => this.#open(), delay);
  }

  #hear(message) {
    switch (message.type) {
      case "entered":
        this.user = message.user;
        if (this.session !== message.session) {
          this.session = message.session;
          sessionStorage.setItem("headwater.session", message.session);
          this.#claimed();
        }
        this.#isEntered = true;
        this.#delay = FIRST_DELAY_MS;
        this.#mostBytes = message.most_bytes;
        for (const [id, { text, reject, again }] of [...this.#unanswered]) {
          const tooLong = this.#tooLong(text);
          if (tooLong === null) { again?.(); this.#say(text); }
          else { this.#unanswered.delete(id); reject(tooLong); }
        }
        for (const { member, text } of this.#looks.values()) {
          member.lookedAtAgain();
          this.#say(text);
        }
        this.#tellOnline(true);
        break;
      case "shown":
        this.#looks.get(message.id)?.member.shown(message.there ? message.value : undefined);
        break;
      case "made":
        this.#unanswered.get(message.id)?.made?.();
        break;
      case "done": case "refused": case "failed":
        if (message.id === 0) this.#refused(message.error);
        else this.#answer(message);
        break;
    }
  }

  #answer(message) {
    const asked = this.#unanswered.get(message.id);
    if (asked === undefined) {
      this.#looks.get(message.id)?.member.failed(message.error);
      return;
    }
    this.#unanswered.delete(message.id);
    if (message.type === "done") asked.resolve(message.value);
    else if (message.type === "refused") asked.reject(new Refused(message.reason));
    else asked.reject(new Failed(message.error));
  }

  #say(text) {
    if (this.#isEntered && this.#socket.readyState === WebSocket.OPEN) this.#socket.send(text);
  }

  #tellOnline(isOnline) {
    if (this.isOnline !== isOnline) {
      this.isOnline = isOnline;
      for (const fn of this.#listeners) called(fn, isOnline);
    }
  }
}

class Space {
  #app; #name;
  constructor(app, name) { this.#app = app; this.#name = name; }

  /** A piece by its class and its name. Its members are its properties. */
  piece(cls, name) { return members(this.#app, { space: this.#name, cls, name }); }

  /** A child, as an `each` shows it: { key, cls, id }. */
  child({ cls, id }) { return members(this.#app, { space: this.#name, cls, id }); }
}

function members(app, where) {
  const known = new Map();
  return new Proxy({}, {
    get(_, name) {
      if (typeof name !== "string" || name === "then") return undefined;
      if (!known.has(name)) known.set(name, new Member(app, { ...where, member: name }));
      return known.get(name);
    },
  });
}

class Member {
  #app; #value; #isKnown = false; #echoes = []; #watchers = new Map(); #look = 0; #parts = new Map();
  #isFresh = false;  // whether something was shown since it is looked at, on this connection
  #held = null;      // what was shown last, as long as nobody knows which of the echoes are in it

  constructor(app, place) { this.#app = app; this.place = place; }

  /** A part of a cell: `cards.at("c1", "title")`. */
  at(...path) {
    const key = JSON.stringify(path);
    if (!this.#parts.has(key))
      this.#parts.set(key, new Member(this.#app, { ...this.place, path: [...(this.place.path ?? []), ...path] }));
    return this.#parts.get(key);
  }

  /** Call with the value now and with the latest whenever it changed. Answers a function that ends it.
   *  `onError` is called with the reason if the member cannot be shown, also if its row left or its piece was deleted. */
  watch(fn, { group = null, onError = inConsole } = {}) {
    if (this.#watchers.size === 0) { this.lookedAtAgain(); this.#look = this.#app.look(this, group); }
    const isKnown = this.#watchers.size > 0 && this.#isKnown;
    this.#watchers.set(fn, onError);
    if (isKnown) fn(this.value);
    return () => {
      this.#watchers.delete(fn);
      if (this.#watchers.size === 0) { this.#app.lookAway(this.#look); this.#isKnown = false; }
    };
  }

  /** What is shown now: the last value that was heard, with what was done here on top. */
  get value() {
    return this.#echoes.reduce((value, { kind, argument }) => applied(value, kind, argument), this.#value);
  }

  /** Have an event handled, and wait until that is durable. */
  send(args = {}) { return this.#app.ask({ type: "send", place: this.place, args, key: token() }); }

  set(value, options) { return this.#write("set", value, options); }
  push(value, options) { return this.#write("push", value, options); }
  add(value, options) { return this.#write("add", value, options); }
  discard(value, options) { return this.#write("discard", value, options); }
  increment(by = 1, options = {}) { return this.#write("increment", by, options); }
  delete(options) { return this.#write("delete", null, options); }

  /** Tie an input to a cell: what is typed is written, what others write is shown, but not over what is being typed.
   *  A number and a range are a number, a checkbox is true or false, a radio button the value of the one that is chosen.
   *  `onError` is called with the reason if something was not written or cannot be shown. */
  bind(element, { onError = inConsole } = {}) {
    const group = this.#app.group;
    let timer = null;
    const write = () => {
      timer = null;
      const value = typedIn(element);
      if (value !== undefined) this.set(value, { group }).catch(onError);
    };
    const typed = () => { clearTimeout(timer); timer = setTimeout(write, TYPING_MS); };
    element.addEventListener("input", typed);
    const stop = this.watch(value => { if (timer === null && value !== undefined) show(element, value); }, { group, onError });
    return () => { element.removeEventListener("input", typed); if (timer !== null) { clearTimeout(timer); write(); } stop(); };
  }

  async #write(kind, argument, { group = null } = {}) {
    const echo = { kind, argument, isMade: false, isIn: false, isDoubtful: false };
    const made = () => {
      echo.isDoubtful = false;
      const isNew = this.#settle();
      echo.isMade = true;  // It is part of what is shown next.
      if (group !== null) {  // Nor is it shown.
        this.#value = applied(this.#value, kind, argument);
        if (this.#held !== null) this.#held.value = applied(this.#held.value, kind, argument);
        this.#drop(echo);
      }
      if (isNew) this.#tell();
    };
    const again = () => { echo.isDoubtful = !echo.isMade; };
    this.#echoes.push(echo);
    this.#tell();
    try {
      await this.#app.ask({ type: "write", place: this.place, kind, value: argument, group, key: token() }, { made, again });
      const wasMadeBefore = echo.isDoubtful;  // On a connection that was lost: what is shown on this one has it.
      echo.isDoubtful = false;
      if (wasMadeBefore && !this.#isFresh && this.#watchers.size > 0) { echo.isMade = true; return; }
      if (!echo.isMade || this.#watchers.size === 0) { this.#drop(echo); this.#settle(); this.#tell(); }
    } catch (error) {
      this.#drop(echo);
      this.#settle();
      this.#tell();
      throw error;
    }
  }

  #drop(echo) { this.#echoes = this.#echoes.filter(each => each !== echo); }

  /** It is looked at on a new connection, or anew: what is shown next is everything. */
  lookedAtAgain() {
    this.#isFresh = false;
    this.#held = null;
    for (const echo of this.#echoes) echo.isIn = false;
  }

  shown(value) {
    this.#isFresh = true;
    this.#held = { value };
    for (const echo of this.#echoes) echo.isIn = echo.isMade;
    if (this.#settle()) this.#tell();
  }

  /** Take what was shown for what it is, unless an echo may be in it or not. */
  #settle() {
    if (this.#held === null || this.#echoes.some(echo => echo.isDoubtful)) return false;
    this.#value = this.#held.value;
    this.#held = null;
    this.#isKnown = true;
    this.#echoes = this.#echoes.filter(echo => !echo.isIn);
    return true;
  }

  failed(error) {
    const why = new Failed(`${this.place.member}: ${error}`);
    for (const onError of new Set(this.#watchers.values())) called(onError, why);
  }

  #tell() { if (this.#isKnown) for (const fn of [...this.#watchers.keys()]) called(fn, this.value); }
}

function inConsole(error) { console.error("headwater:", error); }

/** One who fails does not keep the others from hearing. */
function called(fn, argument) {
  try { fn(argument); } catch (error) { reportError(error); }
}

/** What is in an input, or undefined if that is nothing to write. */
function typedIn(element) {
  switch (element.type) {
    case "checkbox": return element.checked;
    case "radio": return element.checked ? element.value : undefined;
    case "number": case "range": return Number.isNaN(element.valueAsNumber) ? undefined : element.valueAsNumber;
    default: return element.value;
  }
}

function show(element, value) {
  if (element.type === "checkbox") element.checked = value;
  else if (element.type === "radio") element.checked = value === element.value;
  else element.value = value;
}

/** What a write makes of a value. One that does not fit the value makes nothing of it: its answer will say so. */
function applied(value, kind, argument) {
  if (kind === "set") return argument;
  if (kind === "delete") return undefined;
  if (kind === "increment") {
    const isNumber = typeof (value ?? 0) === "number" && typeof argument === "number";
    return isNumber ? (value ?? 0) + argument : value;
  }
  const items = value ?? [];
  if (!Array.isArray(items)) return value;
  switch (kind) {
    case "push": return [...items, argument];
    case "add": return items.some(each => same(each, argument)) ? value : [...items, argument];
    case "discard": return items.filter(each => !same(each, argument));
    default: return value;
  }
}

const same = (one, other) => asText(one) === asText(other);

/** A value as JSON, or null for what is none, as a BigInt is. */
function asText(value) {
  try { return JSON.stringify(value); } catch { return null; }
}
