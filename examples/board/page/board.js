import { connect, Refused } from "/headwater.js";

const COLUMNS = ["todo", "doing", "done"];
const user = new URLSearchParams(location.search).get("user") ?? localStorage.getItem("board.user") ?? `guest-${Math.floor(Math.random() * 900 + 100)}`;
localStorage.setItem("board.user", user);

const app = connect({ user });
const board = app.space("team").piece("board.Board", "main");
const at = id => document.getElementById(id);
const columns = new Map();
let cards = {}, selected = null, found = new Set(), dragged = null;

for (const name of COLUMNS) {
  const section = at("column").content.firstElementChild.cloneNode(true);
  section.querySelector(".name").textContent = name;
  const list = section.querySelector("ol");
  section.querySelector("form").addEventListener("submit", event => {
    event.preventDefault();
    const input = event.target.elements.title;
    const title = input.value;
    input.value = "";
    tell(board.add.send({ column: name, title }).catch(error => { input.value = title; throw error; }));
  });
  // All of a column takes a card, with its heading and its field: below the last card is where people drop.
  section.addEventListener("dragover", event => {
    if (dragged === null) return;
    event.preventDefault();
    list.classList.add("over");
  });
  section.addEventListener("dragleave", event => {
    if (!section.contains(event.relatedTarget)) list.classList.remove("over");
  });
  section.addEventListener("drop", event => {
    if (dragged === null) return;
    event.preventDefault();
    list.classList.remove("over");
    drop(name, event.clientY);
  });
  columns.set(name, { section, list, items: new Map() });
  at("columns").append(section);
}

board.title.bind(at("title"));
board.search.bind(at("search"));
board.cards.watch(value => { cards = value ?? {}; draw(); });
board.selected.watch(value => { selected = value; draw(); });
board.found.watch(keys => { found = new Set(keys); draw(); });
board.points.watch(points => {
  for (const [name, { section }] of columns) {
    const sum = points[name] ?? 0;
    section.querySelector("h2 .points").textContent = `${sum} ${sum === 1 ? "point" : "points"}`;
  }
});
app.onConnection(isOnline => {
  at("state").textContent = isOnline ? "live" : "reconnecting…";
  at("state").classList.toggle("away", !isOnline);
  at("who").textContent = app.user;
});

function sorted(column) {
  return Object.entries(cards).filter(([, card]) => card.column === column)
    .sort(([a, x], [b, y]) => (x.rank < y.rank ? -1 : x.rank > y.rank ? 1 : a < b ? -1 : 1));
}

function draw() {
  for (const [name, { list, items }] of columns) {
    const wanted = sorted(name);
    const keys = new Set(wanted.map(([key]) => key));
    for (const [key, item] of items) if (!keys.has(key)) { item.remove(); items.delete(key); }
    wanted.forEach(([key, card], index) => {
      if (!items.has(key)) items.set(key, make(key));
      const item = items.get(key);
      const title = item.querySelector(".title");
      if (document.activeElement !== title && title.textContent !== card.title) title.textContent = card.title;
      item.querySelector(".points").textContent = card.points ?? 1;
      item.querySelector(".by").textContent = card.by ?? "";
      item.classList.toggle("selected", key === selected);
      item.classList.toggle("found", found.has(key));
      if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
    });
  }
}

function make(key) {
  const item = at("card").content.firstElementChild.cloneNode(true);
  item.dataset.key = key;
  const title = item.querySelector(".title");
  title.addEventListener("blur", () => {
    if (title.textContent !== cards[key]?.title) tell(board.rename.send({ card: key, title: title.textContent }));
  });
  title.addEventListener("keydown", event => { if (event.key === "Enter") { event.preventDefault(); title.blur(); } });
  item.querySelector("button").addEventListener("click", () => tell(board.remove.send({ card: key })));
  item.addEventListener("click", () => tell(board.select.send({ card: key })));
  item.addEventListener("dragstart", event => {
    dragged = key;
    item.classList.add("dragged");
    event.dataTransfer.setData("application/x-card", key);  // no text: a field would take that as typed
  });
  item.addEventListener("dragend", () => { dragged = null; item.classList.remove("dragged"); });
  return item;
}

function drop(column, y) {
  if (dragged === null) return;
  const others = sorted(column).filter(([key]) => key !== dragged);
  const items = columns.get(column).items;
  const index = others.findIndex(([key]) => { const box = items.get(key).getBoundingClientRect(); return y < box.top + box.height / 2; });
  const place = index < 0 ? others.length : index;
  tell(board.move.send({
    card: dragged, column,
    after: others[place - 1]?.[1].rank ?? null,
    before: others[place]?.[1].rank ?? null,
  }));
}

let hiding = 0;
function tell(work) {
  return work.catch(error => {
    const notice = at("notice");
    notice.textContent = error instanceof Refused ? error.message : `That did not work: ${error.message}`;
    notice.hidden = false;
    clearTimeout(hiding);
    hiding = setTimeout(() => { notice.hidden = true; }, 4000);
  });
}
