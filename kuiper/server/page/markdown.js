// Page elements and Markdown. Uses text nodes only, so that the model's text is never parsed as HTML.
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
