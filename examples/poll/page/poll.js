import { connect } from "/headwater.js";

const user = new URLSearchParams(location.search).get("user") ?? localStorage.getItem("poll.user") ?? `guest-${Math.floor(Math.random() * 900 + 100)}`;
localStorage.setItem("poll.user", user);

const app = connect({ user });
const poll = app.space("poll").piece("poll.Poll", "main");
const at = id => document.getElementById(id);
let options = [], tally = {}, mine = null, isOpen = true;

const tell = sent => sent.then(() => at("notice").textContent = "", error => at("notice").textContent = error.message);

poll.question.watch(text => at("question").textContent = text);
poll.options.watch(value => { options = value ?? []; draw(); });
poll.tally.watch(value => { tally = value ?? {}; draw(); });
poll.mine.watch(value => { mine = value; draw(); });
poll.is_open.watch(value => { isOpen = value; draw(); });
poll.result.watch(text => at("result").textContent = text === "open" ? "Choose one; you can change your mind." : text);
poll.cast.watch(count => at("cast").textContent = `${count ?? 0} ${count === 1 ? "vote" : "votes"} cast, changed ones included`);
app.onConnection(isOnline => {
  at("state").textContent = isOnline ? "live" : "reconnecting…";
  at("state").classList.toggle("away", !isOnline);
  at("who").textContent = app.user;
});

function draw() {
  const all = Object.values(tally).reduce((sum, count) => sum + count, 0);
  at("options").replaceChildren(...options.map(name => {
    const item = at("option").content.firstElementChild.cloneNode(true);
    const count = tally[name] ?? 0;
    item.querySelector(".name").textContent = name;
    item.querySelector(".count").textContent = count;
    item.querySelector(".bar").style.width = `${all ? (100 * count) / all : 0}%`;
    item.classList.toggle("mine", name === mine);
    const button = item.querySelector("button");
    button.disabled = !isOpen;
    button.addEventListener("click", () => tell(poll.vote.send({ option: name })));
    return item;
  }));
}

document.querySelector("form").addEventListener("submit", event => {
  event.preventDefault();
  const { question, options, seconds } = event.target.elements;
  tell(poll.begin.send({ question: question.value, options: options.value.split(","), seconds: Number(seconds.value) })
    .then(() => { event.target.closest("details").open = false; }));
});
