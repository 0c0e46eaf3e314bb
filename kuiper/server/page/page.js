// The chat page. It contacts only its own server. markdown.js draws the model's text; verify.js verifies answers.
"use strict";
// ---- Stored in this browser: conversations and settings.
const SETTINGS = [
  ["system", "System message", ""], ["temperature", "Temperature", ""], ["top_p", "Top p", ""], ["top_k", "Top k", ""],
  ["min_p", "Min p", ""], ["max_tokens", "Max tokens", ""], ["seed", "Seed", ""], ["presence_penalty", "Presence penalty", ""],
  ["repetition_penalty", "Repetition penalty", ""], ["reasoning_budget", "Reasoning budget", ""],
  ["thinking", "Thinking (on, off, or empty)", ""], ["raw", "Raw text (yes, or empty)", ""], ["key", "API key", ""]];
const read = (name, other) => {
  try { return JSON.parse(localStorage.getItem("kuiper." + name)) ?? other; } catch { return other; }
};
const keep = (name, value) => {
  try { localStorage.setItem("kuiper." + name, JSON.stringify(value)); return true; } catch (e) { console.warn(e); return false; }
};
let settings = read("settings", {});
let chats = read("chats", []);
let current = null;  // the open one of chats
let running = null;  // {stop, id}
// If the browser has no room for the images, only the texts are stored.
const save = () => keep("chats", chats) || keep("chats", chats.map((chat) => ({...chat,
  messages: chat.messages.map(({images, ...rest}) => rest)})));

// ---- The list of conversations, and the messages of the current one.
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
    body.append(...(message.images ?? []).map((url, i) => picture(url, "Picture " + (i + 1))), text);
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
  if (message.ids?.length) tools.append(...verification(message, index));
  if (message.stats) tools.append(make("span", "", message.stats));
  return node;
}
// The message list stays scrolled to its end until the user scrolls away.
let follows = true;
function toEnd() {
  if (follows) $("messages").scrollTop = $("messages").scrollHeight;
}
$("messages").addEventListener("scroll", () => {
  const list = $("messages");
  follows = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
});
function show(chat) {
  if (!chat) {
    chat = {title: "", messages: []};
    chats.unshift(chat);
  }
  if (running && chat !== current) running.stop();
  current = chat;
  $("messages").replaceChildren(...chat.messages.map(draw));
  follows = true;
  toEnd();
  closeMenu();
  drawList();
  $("input").focus();
}
function edit(index) {
  if (running) return;
  $("input").value = current.messages[index].content;
  attached = current.messages[index].images ?? [];
  drawAttached();
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

// ---- Sending requests.
const headers = () => ({"Content-Type": "application/json", ...(settings.key ? {Authorization: "Bearer " + settings.key} : {})});
function messagesOf(list, system) {
  const messages = list.map(({role, content, images}) => ({role, content: contentOf(content, images)}));
  return system ? [{role: "system", content: system}, ...messages] : messages;
}
// The body asks for the ids and sets a seed, because verification needs both.
function bodyOf(chat) {
  const body = {messages: messagesOf(chat.messages, settings.system), stream: true, stream_options: {include_usage: true},
    return_token_ids: true, seed: crypto.getRandomValues(new Uint32Array(1))[0]};
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
  const choice = event.choices[0], delta = choice?.delta ?? {};
  message.ids.push(...choice?.token_ids ?? []);
  if (event.prompt_token_ids) promptIds.set(message, event.prompt_token_ids);
  message.content += delta.content ?? "";
  message.reasoning = (message.reasoning ?? "") + (delta.reasoning_content ?? delta.reasoning ?? "");
  if (!event.usage) return;
  const t = event.timings, cached = event.usage.prompt_tokens_details.cached_tokens;
  message.stats = `${event.usage.prompt_tokens} tokens in (${cached} reused), ${event.usage.completion_tokens} out` +
    (t ? `, first after ${Math.round(t.queue_ms + t.prompt_ms)} ms, ${t.predicted_per_second.toFixed(1)} tokens/s` : "");
}
// Draws at most once per frame: tokens may arrive faster than the browser draws.
let frame = null;
function drawSoon(node, message) {
  frame ??= requestAnimationFrame(() => {
    frame = null;
    fill(node, message);
    toEnd();
  });
}
async function answer() {
  const chat = current, control = new AbortController(), {messages, stream, stream_options, ...asked} = bodyOf(chat);
  const message = {role: "assistant", content: "", ids: [], asked, system: settings.system};
  const id = "page-" + crypto.getRandomValues(new Uint32Array(2)).join("-");
  running = {id, stop: () => control.abort()};
  const body = JSON.stringify({messages, stream, stream_options, ...asked});
  chat.messages.push(message);
  const node = draw(message, chat.messages.length - 1);
  $("messages").append(node);
  follows = true;
  toEnd();
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
    toEnd();
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
  if (running || !(text.trim() || attached.length)) return;
  $("input").value = "";
  current.messages.push({role: "user", content: text, ...(attached.length ? {images: attached} : {})});
  attached = [];
  drawAttached();
  $("messages").append(draw(current.messages.at(-1), current.messages.length - 1));
  answer();
}

// ---- Images attached to the next message.
let attached = [];  // data: URLs
let sees = false;   // the model accepts images
const picture = (url, name) => {
  const node = make("img");
  node.src = url;
  node.alt = name;
  return node;
};
const contentOf = (text, images) => !images?.length ? text :
  [...images.map((url) => ({type: "image_url", image_url: {url}})), {type: "text", text}];
function drawAttached() {
  $("attached").replaceChildren(...attached.map((url, i) => {
    const remove = button("", () => { attached.splice(i, 1); drawAttached(); });
    remove.setAttribute("aria-label", "Remove picture " + (i + 1));
    remove.append(picture(url, ""));
    return remove;
  }));
}
const urlOf = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});
// Returns the file unchanged if the server can read it and it is not large; otherwise redraws it.
async function dataUrl(file) {
  const MOST_BYTES = 1 << 20, MOST_PIXELS = 1536;
  if (/^image\/(png|jpeg|gif|webp)$/.test(file.type) && file.size <= MOST_BYTES) return urlOf(file);
  const image = await createImageBitmap(file), canvas = make("canvas");
  const scale = Math.min(1, MOST_PIXELS / Math.max(image.width, image.height));
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}
async function attach(files) {
  for (const file of files) {
    if (!sees || !file.type.startsWith("image/")) continue;
    try { attached.push(await dataUrl(file)); } catch (error) { alert(file.name + ": " + error.message); }
  }
  drawAttached();
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
  const canvas = $("page-map"), style = getComputedStyle(document.documentElement);
  const size = kv.blocks.length > 4000 ? 5 : kv.blocks.length > 400 ? 9 : 15;
  const columns = Math.max(1, Math.floor(canvas.clientWidth / size));
  canvas.width = columns * size;
  canvas.height = Math.ceil(kv.blocks.length / columns) * size;
  canvas.style.height = canvas.height + "px";
  const context = canvas.getContext("2d"), names = {".": "--free", u: "--used", s: "--shared", c: "--cached"};
  for (let i = 0; i < kv.blocks.length; i++) {
    const isMine = mine.has(i + 1), isShared = kv.blocks[i] === "s", x = (i % columns) * size, y = Math.floor(i / columns) * size;
    context.fillStyle = style.getPropertyValue(isMine ? "--own" : names[kv.blocks[i]]);
    context.fillRect(x, y, size - 1, size - 1);
    if (!isMine || !isShared) continue;
    context.fillStyle = style.getPropertyValue("--shared");
    context.fillRect(x, y, size - 1, (size - 1) / 2);
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

// ---- Startup.
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
    sees = props.modalities?.vision ?? false;
    $("attach").hidden = !sees;
    for (const input of $("settings").querySelectorAll("input")) {
      const value = props.default_generation_settings?.[input.name];
      if (value !== undefined && value !== null) input.placeholder = String(value);
    }
  } catch (error) {
    $("model").textContent = "no answer from the server";
  }
}
// Converts a content: a text, or a list of texts and images.
function partsOf(content) {
  if (!Array.isArray(content)) return {content: String(content ?? "")};
  const images = content.map((part) => part.image_url?.url ?? part.image_url ?? part.image).filter((url) => url?.startsWith("data:image/"));
  return {content: content.map((part) => part.text ?? "").join(""), ...(images.length ? {images} : {})};
}
function importChats(text) {
  const found = JSON.parse(text);
  const list = Array.isArray(found) ? found : [found];
  for (const chat of list) {
    if (!Array.isArray(chat.messages)) throw new Error("this file holds no conversations");
    chats.unshift({title: String(chat.title ?? "Imported"),
      messages: chat.messages.filter((m) => ["user", "assistant"].includes(m.role))
        .map((m) => ({role: m.role, ...partsOf(m.content), reasoning: m.reasoning_content ?? m.reasoning}))});
  }
  save();
  show(chats[0]);
}
function exportChat() {
  const messages = current.messages.map((m) => ({role: m.role, content: contentOf(m.content, m.images), ...(m.reasoning ? {reasoning_content: m.reasoning} : {})}));
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
$("attach").addEventListener("click", () => $("picture").click());
$("picture").addEventListener("change", async () => { await attach($("picture").files); $("picture").value = ""; });
$("input").addEventListener("paste", (event) => attach(event.clipboardData.files));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });
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
