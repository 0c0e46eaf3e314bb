// The chat page. It asks nobody but the server that it came from, and writes what a model said as text
// nodes only.
"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.append(text);
  return node;
};
const button = (text, action) => {
  const node = make("button", "", text);
  node.type = "button";
  node.addEventListener("click", action);
  return node;
};

// ---- What is kept: conversations and settings, in this browser.
const SETTINGS = [
  ["system", "System message", ""], ["temperature", "Temperature", ""], ["top_p", "Top p", ""], ["top_k", "Top k", ""],
  ["min_p", "Min p", ""], ["max_tokens", "Max tokens", ""], ["seed", "Seed", ""], ["presence_penalty", "Presence penalty", ""],
  ["repetition_penalty", "Repetition penalty", ""], ["reasoning_budget", "Reasoning budget", ""],
  ["thinking", "Thinking (on, off, or empty)", ""], ["raw", "Raw text (yes, or empty)", ""], ["key", "API key", ""]];
const read = (name, other) => {
  try { return JSON.parse(localStorage.getItem("kuiper." + name)) ?? other; } catch { return other; }
};
const keep = (name, value) => {
  try { localStorage.setItem("kuiper." + name, JSON.stringify(value)); } catch (e) { console.warn(e); }
};
let settings = read("settings", {});
let chats = read("chats", []);
let current = null;  // of chats
let running = null;  // {stop, id}
const save = () => keep("chats", chats);

// ---- Markdown, into text nodes.
const WORDS = /\b(?:if|else|elif|for|while|return|def|class|import|from|in|not|and|or|function|const|let|var|new|struct|int|void|auto|bool|float|double|char|static|public|private|fn|use|impl|match|select|where|insert|update|package|func|type|true|false|null|None|True|False|echo|then|fi|do|done)\b/;
const CODE = new RegExp(`("(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*')|(//[^\\n]*|#[^\\n]*|/\\*[^]*?\\*/)|(${WORDS.source})`, "g");
function highlight(text, into) {
  let at = 0;
  for (const found of text.matchAll(CODE)) {
    into.append(text.slice(at, found.index), make("span", found[1] ? "quote" : found[2] ? "note" : "word", found[0]));
    at = found.index + found[0].length;
  }
  into.append(text.slice(at));
}
function codeBlock(text) {
  const block = make("div", "code"), pre = make("pre"), code = make("code");
  highlight(text, code);
  pre.append(code);
  pre.tabIndex = 0;
  block.append(pre, button("Copy", () => navigator.clipboard.writeText(text)));
  return block;
}
function inline(text, into) {
  const pattern = /(`+)([^`]+)\1|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:[^)\s]+)\)/g;
  let at = 0;
  for (const m of text.matchAll(pattern)) {
    into.append(text.slice(at, m.index));
    at = m.index + m[0].length;
    if (m[2] !== undefined) into.append(make("code", "", m[2]));
    else if (m[3] !== undefined) into.append(make("strong", "", m[3]));
    else if (m[4] !== undefined) into.append(make("em", "", m[4]));
    else {
      const link = make("a", "", m[5]);
      link.href = m[6];
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      into.append(link);
    }
  }
  into.append(text.slice(at));
  return into;
}
const cells = (line) => line.replace(/^\s*\||\|\s*$/g, "").split("|").map((c) => c.trim());
function table(lines) {
  const node = make("table");
  lines.forEach((line, i) => {
    if (i === 1) return;
    const row = make("tr");
    for (const cell of cells(line)) row.append(inline(cell, make(i === 0 ? "th" : "td")));
    node.append(row);
  });
  return node;
}
function markdown(text, into) {
  const lines = text.split("\n");
  const is = (i, pattern) => i < lines.length && pattern.test(lines[i]);
  const take = (i, pattern) => { const from = i; while (is(i, pattern)) i++; return lines.slice(from, i); };
  for (let i = 0; i < lines.length;) {
    const fence = lines[i].match(/^\s*(```+|~~~+)/);
    if (fence) {
      let end = i + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
      into.append(codeBlock(lines.slice(i + 1, end).join("\n")));
      i = end + 1;
    } else if (is(i, /^#{1,6}\s/)) {
      const level = lines[i].match(/^#+/)[0].length;
      into.append(inline(lines[i++].replace(/^#+\s*/, ""), make("h" + Math.min(level + 1, 6))));
    } else if (is(i, /^\s*([-*+]|\d+[.)])\s/)) {
      const items = take(i, /^\s*([-*+]|\d+[.)])\s/), list = make(/^\s*\d/.test(items[0]) ? "ol" : "ul");
      if (list.tagName === "OL") list.start = parseInt(items[0], 10);
      for (const item of items) list.append(inline(item.replace(/^\s*([-*+]|\d+[.)])\s+/, ""), make("li")));
      into.append(list);
      i += items.length;
    } else if (is(i, /^>/)) {
      const quoted = take(i, /^>/);
      const quote = make("blockquote");
      markdown(quoted.map((l) => l.replace(/^>\s?/, "")).join("\n"), quote);
      into.append(quote);
      i += quoted.length;
    } else if (is(i, /\|/) && is(i + 1, /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/)) {
      const rows = take(i, /\|/);
      into.append(table(rows));
      i += rows.length;
    } else if (lines[i].trim() === "") {
      i++;
    } else {
      const paragraph = take(i, /^(?!\s*(```|~~~|[-*+]\s|\d+[.)]\s)|#{1,6}\s|>)\s*\S/);
      into.append(inline(paragraph.length ? paragraph.join("\n") : lines[i], make("p")));
      i += Math.max(1, paragraph.length);
    }
  }
}

// ---- The list of conversations, and the messages of one.
function drawList() {
  $("list").replaceChildren(...chats.map((chat) => {
    const item = make("li", chat === current ? "current" : "");
    const open = button(chat.title || "New conversation", () => show(chat));
    if (chat === current) open.setAttribute("aria-current", "true");
    const remove = button("\u00d7", () => {
      chats = chats.filter((other) => other !== chat);
      save();
      show(chat === current ? chats[0] : current);
    });
    remove.setAttribute("aria-label", "Delete " + (chat.title || "conversation"));
    item.append(open, remove);
    return item;
  }));
}
function fill(node, message) {
  const body = node.querySelector(".body");
  body.replaceChildren();
  if (message.reasoning) {
    const thinking = make("details"), text = make("div");
    thinking.open = body.dataset.open === "yes";
    thinking.addEventListener("toggle", () => { body.dataset.open = thinking.open ? "yes" : ""; });
    markdown(message.reasoning, text);
    thinking.append(make("summary", "", "Thinking"), text);
    body.append(thinking);
  }
  if (settings.raw || message.role === "user") {
    const text = make("div", "", message.content);
    text.style.whiteSpace = "pre-wrap";
    body.append(text);
  } else {
    markdown(message.content, body);
  }
  if (message.error) body.append(make("p", "error", message.error));
}
function draw(message, index) {
  const node = make("li", "message " + message.role), tools = make("div", "tools");
  node.append(make("span", "hidden", message.role === "user" ? "You:" : "Model:"), make("div", "body"), tools);
  fill(node, message);
  tools.append(button("Copy", () => navigator.clipboard.writeText(message.content)));
  if (message.role === "user") tools.append(button("Edit", () => edit(index)));
  else tools.append(button("Regenerate", () => again(index)));
  if (message.stats) tools.append(make("span", "", message.stats));
  return node;
}
function show(chat) {
  if (!chat) {
    chat = {title: "", messages: []};
    chats.unshift(chat);
  }
  if (running && chat !== current) running.stop();
  current = chat;
  $("messages").replaceChildren(...chat.messages.map(draw));
  $("messages").scrollTop = $("messages").scrollHeight;
  closeMenu();
  drawList();
  $("input").focus();
}
function edit(index) {
  if (running) return;
  $("input").value = current.messages[index].content;
  current.messages.length = index;
  save();
  show(current);
}
function again(index) {
  if (running) return;
  current.messages.length = index;
  show(current);
  answer();
}

// ---- Asking.
const headers = () => ({"Content-Type": "application/json", ...(settings.key ? {Authorization: "Bearer " + settings.key} : {})});
function bodyOf(chat) {
  const messages = chat.messages.map(({role, content}) => ({role, content}));
  if (settings.system) messages.unshift({role: "system", content: settings.system});
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  for (const [name] of SETTINGS) {
    if (["system", "thinking", "raw", "key"].includes(name) || settings[name] === undefined || settings[name] === "") continue;
    body[name] = Number(settings[name]);
  }
  if (settings.thinking) body.enable_thinking = settings.thinking === "on";
  return body;
}
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
function take(event, message) {
  if (event.error) throw new Error(event.error.message);
  const delta = event.choices[0]?.delta ?? {};
  message.content += delta.content ?? "";
  message.reasoning = (message.reasoning ?? "") + (delta.reasoning_content ?? delta.reasoning ?? "");
  if (!event.usage) return;
  const t = event.timings, cached = event.usage.prompt_tokens_details.cached_tokens;
  message.stats = `${event.usage.prompt_tokens} tokens in (${cached} reused), ${event.usage.completion_tokens} out` +
    (t ? `, first after ${Math.round(t.queue_ms + t.prompt_ms)} ms, ${t.predicted_per_second.toFixed(1)} tokens/s` : "");
}
// Tokens may come faster than the browser draws.
let frame = null;
function drawSoon(node, message) {
  frame ??= requestAnimationFrame(() => {
    frame = null;
    const list = $("messages"), follows = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    fill(node, message);
    if (follows) list.scrollTop = list.scrollHeight;
  });
}
async function answer() {
  const chat = current, message = {role: "assistant", content: ""}, control = new AbortController();
  const id = "page-" + crypto.getRandomValues(new Uint32Array(2)).join("-");
  running = {id, stop: () => control.abort()};
  const body = JSON.stringify(bodyOf(chat));
  chat.messages.push(message);
  const node = draw(message, chat.messages.length - 1);
  $("messages").append(node);
  setRunning(true);
  try {
    const response = await fetch("v1/chat/completions",
      {method: "POST", headers: {...headers(), "X-Request-Id": id}, body, signal: control.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response)) {
      take(event, message);
      drawSoon(node, message);
    }
  } catch (error) {
    if (error.name !== "AbortError") message.error = String(error.message ?? error);
  }
  running = null;
  setRunning(false);
  if (!chat.title) chat.title = chat.messages[0].content.slice(0, 40);
  save();
  if (chat === current) {
    node.replaceWith(draw(message, chat.messages.length - 1));
    drawList();
  }
}
function setRunning(on) {
  $("stop").hidden = !on;
  $("send").hidden = on;
  $("messages").setAttribute("aria-busy", String(on));
}
function send(event) {
  event?.preventDefault();
  const text = $("input").value;
  if (running || !text.trim()) return;
  $("input").value = "";
  current.messages.push({role: "user", content: text});
  $("messages").append(draw(current.messages.at(-1), current.messages.length - 1));
  answer();
}

// ---- The map of KV pages.
let watch = null;
function drawPages(kv) {
  $("page-text").textContent = !kv.paged ? "The KV cache is not paged." :
    `${kv.num_blocks} pages of ${kv.block_size} tokens: ${kv.used} in use, ${kv.free} free, ${kv.blocks.split("s").length - 1} shared; ` +
    `sharing saves ${kv.saved}; ${(kv.bytes_touched / 1048576).toFixed(1)} of ${(kv.bytes_reserved / 1048576).toFixed(1)} MB touched; ` +
    `${kv.prefix_cache.hits} of ${kv.prefix_cache.queries} prompt tokens reused.`;
  const own = running ? kv.sequences.filter((s) => s.request === running.id && !s.swapped) : [];
  const mine = new Set(own.flatMap((s) => s.pages));
  $("page-table").textContent = own.length ? "Block table of this answer: " + own[0].pages.join(" ") : "";
  const canvas = $("page-map"), style = getComputedStyle(document.documentElement), size = kv.blocks.length > 4000 ? 5 : 9;
  const columns = Math.max(1, Math.floor(canvas.clientWidth / size));
  canvas.width = columns * size;
  canvas.height = Math.ceil(kv.blocks.length / columns) * size;
  canvas.style.height = canvas.height + "px";
  const context = canvas.getContext("2d"), names = {".": "--free", u: "--used", s: "--shared", c: "--cached"};
  for (let i = 0; i < kv.blocks.length; i++) {
    context.fillStyle = style.getPropertyValue(mine.has(i + 1) ? "--own" : names[kv.blocks[i]]);
    context.fillRect((i % columns) * size, Math.floor(i / columns) * size, size - 1, size - 1);
  }
}
async function watchPages(control) {
  try {
    const response = await fetch("kuiper/kv", {headers: headers(), signal: control.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const kv of events(response)) drawPages(kv);
  } catch (error) {
    if (error.name !== "AbortError") $("page-text").textContent = String(error.message ?? error);
  }
}
function toggle(control, panel) {
  $(panel).hidden = !$(panel).hidden;
  $(control).setAttribute("aria-expanded", String(!$(panel).hidden));
  return !$(panel).hidden;
}
function closeMenu() {
  $("side").classList.remove("open");
  $("menu").setAttribute("aria-expanded", "false");
}

// ---- Begin.
function drawSettings() {
  for (const [name, title, value] of SETTINGS) {
    const label = make("label", "", title), input = make(name === "system" ? "textarea" : "input");
    if (name === "key") input.type = "password";
    input.name = name;
    input.value = settings[name] ?? value;
    input.addEventListener("change", () => { settings[name] = input.value.trim(); keep("settings", settings); start(); });
    label.append(input);
    $("settings").append(label);
  }
}
async function start() {
  try {
    const props = await (await fetch("props", {headers: headers()})).json();
    $("model").textContent = props.error ? props.error.message : props.model;
    for (const input of $("settings").querySelectorAll("input")) {
      const value = props.default_generation_settings?.[input.name];
      if (value !== undefined && value !== null) input.placeholder = String(value);
    }
  } catch (error) {
    $("model").textContent = "no answer from the server";
  }
}
function importChats(text) {
  const found = JSON.parse(text);
  const list = Array.isArray(found) ? found : [found];
  for (const chat of list) {
    if (!Array.isArray(chat.messages)) throw new Error("this file holds no conversations");
    chats.unshift({title: String(chat.title ?? "Imported"),
      messages: chat.messages.filter((m) => ["user", "assistant"].includes(m.role))
        .map((m) => ({role: m.role, content: String(m.content ?? ""), reasoning: m.reasoning_content ?? m.reasoning}))});
  }
  save();
  show(chats[0]);
}
function exportChat() {
  const messages = current.messages.map((m) => ({role: m.role, content: m.content, ...(m.reasoning ? {reasoning_content: m.reasoning} : {})}));
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify({messages}, null, 1)], {type: "application/json"}));
  link.download = "conversation.json";
  link.click();
  URL.revokeObjectURL(link.href);
}
$("ask").addEventListener("submit", send);
$("settings").addEventListener("submit", (event) => event.preventDefault());
$("stop").addEventListener("click", () => running?.stop());
$("new").addEventListener("click", () => show(null));
$("menu").addEventListener("click", () => {
  $("menu").setAttribute("aria-expanded", String($("side").classList.toggle("open")));
});
$("show-settings").addEventListener("click", () => toggle("show-settings", "settings"));
$("show-pages").addEventListener("click", () => {
  watch?.abort();
  watch = toggle("show-pages", "pages") ? new AbortController() : null;
  if (watch) watchPages(watch);
});
$("export").addEventListener("click", exportChat);
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  try { importChats(await $("file").files[0].text()); } catch (error) { alert(error.message); }
});
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  const last = current.messages.findLastIndex((m) => m.role === "user");
  if (event.key === "ArrowUp" && !$("input").value && last >= 0) { event.preventDefault(); edit(last); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { running?.stop(); closeMenu(); }
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); show(null); }
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); $("input").focus(); }
});
drawSettings();
start();
show(chats[0]);
