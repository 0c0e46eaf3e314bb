// The button that verifies an answer: the server generates it again with and without pages and compares ids and logits.
"use strict";
const promptIds = new WeakMap();  // by answer; not stored, because they are too large
function verification(message, index) {
  const result = make("span");
  result.setAttribute("role", "status");
  const control = button("Verify", async () => {
    if (control.getAttribute("aria-disabled")) return;
    control.setAttribute("aria-disabled", "true");
    result.textContent = "running it again without pages \u2026";
    try {
      const body = {...message.asked, messages: messagesOf(current.messages.slice(0, index), message.system),
        token_ids: message.ids, prompt_token_ids: promptIds.get(message)};
      const response = await fetch("kuiper/verify", {method: "POST", headers: headers(), body: JSON.stringify(body)});
      const report = await response.json();
      result.textContent = report.error?.message ?? report.message;
    } catch (error) {
      result.textContent = String(error.message ?? error);
    }
    control.removeAttribute("aria-disabled");
  });
  control.title = "Run this answer again without pages; compare ids and logits";
  return [control, result];
}
