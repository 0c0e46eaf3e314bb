"""The public clients of OpenAI's and Anthropic's interfaces against kuiper_server, streamed and not.

    python3 test/demo/openai_client.py SERVER MODEL

Ends with 77 (skipped) where the packages openai and anthropic are not installed.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

try:
    import anthropic
    import openai
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} is not {wanted!r}")
    print("ok:", what)


def chats(client):
    whole = client.chat.completions.create(model="tiny", messages=QUESTION, temperature=0, max_tokens=30,
                                           logprobs=True, top_logprobs=2, extra_body=NO_THINKING)
    text, usage, count = "", None, 0
    for chunk in client.chat.completions.create(
            model="tiny", messages=QUESTION, temperature=0, max_tokens=30, logprobs=True, stream=True,
            stream_options={"include_usage": True}, extra_body=NO_THINKING):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            count += len(choice.logprobs.content) if choice.logprobs else 0
        usage = chunk.usage or usage
    expect("streamed chat", text, whole.choices[0].message.content)
    expect("usage", usage.completion_tokens, whole.usage.completion_tokens)
    expect("log probabilities", count, len(whole.choices[0].logprobs.content))
    expect("alternatives", len(whole.choices[0].logprobs.content[0].top_logprobs), 2)
    several = client.chat.completions.create(model="tiny", messages=QUESTION, n=3, temperature=1, seed=4, max_tokens=5,
                                             tools=[TOOL])
    expect("choices", [c.index for c in several.choices], [0, 1, 2])
    thinking = client.chat.completions.create(model="tiny", messages=QUESTION, temperature=0, max_tokens=60)
    expect("reasoning", bool(thinking.choices[0].message.model_dump().get("reasoning_content")), True)


def completions_and_models(client):
    whole = client.completions.create(model="tiny", prompt=["The red", "A"], temperature=0, max_tokens=5, echo=True)
    expect("prompts", [c.text.startswith(p) for c, p in zip(whole.choices, ["The red", "A"])], [True, True])
    text = "".join(c.choices[0].text for c in
                   client.completions.create(model="tiny", prompt="The red", temperature=0, max_tokens=5, stream=True))
    expect("streamed completion", "The red" + text, whole.choices[0].text)
    expect("biased", client.completions.create(model="tiny", prompt="The red", temperature=0, max_tokens=3, logprobs=0,
                                               logit_bias={"42": 100}).choices[0].logprobs.tokens, ["K"] * 3)
    scored = client.completions.create(model="tiny", prompt="The red", max_tokens=0, echo=True, logprobs=2).choices[0]
    expect("scored text", (scored.text, scored.logprobs.token_logprobs[0]), ("The red", None))
    expect("lengths", len({len(l) for l in (scored.logprobs.tokens, scored.logprobs.token_logprobs,
                                            scored.logprobs.top_logprobs, scored.logprobs.text_offset)}), 1)
    expect("pieces", "".join(scored.logprobs.tokens), "The red")
    expect("models", [m.id for m in client.models.list()], ["tiny"])
    expect("model", client.models.retrieve("tiny").id, "tiny")


def errors(client):
    for error, fields in ((openai.NotFoundError, {"model": "huge"}), (openai.BadRequestError, {"temperature": -1}),
                          (openai.BadRequestError, {"response_format": {"type": "json_object"}})):
        try:
            client.chat.completions.create(**{"model": "tiny", "messages": QUESTION, **fields})
            raise AssertionError(f"{fields} was taken")
        except error as found:
            print("ok:", type(found).__name__, found.code)
    try:
        openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key was taken")
    except openai.AuthenticationError as found:
        expect("wrong key", found.code, "invalid_api_key")


def responses(client):
    fields = {"model": "tiny", "input": "What is 2 + 3?", "temperature": 0, "max_output_tokens": 30, "store": False,
              "reasoning": {"effort": "none"}}
    whole = client.responses.create(**fields)
    text, last = "", None
    for event in client.responses.create(**fields, stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    expect("streamed response", text, whole.output_text)
    expect("last event", last.response.output_text, whole.output_text)


def messages(client):
    fields = {"model": "tiny", "max_tokens": 30, "messages": QUESTION, "thinking": {"type": "disabled"},
              "extra_body": {"temperature": 0}}
    whole = client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    expect("streamed message", text, whole.content[0].text)
    expect("stop reason", final.stop_reason, whole.stop_reason)
    count = client.messages.count_tokens(model="tiny", messages=QUESTION, thinking={"type": "disabled"})
    expect("counted", count.input_tokens, whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0))


def main():
    server, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        port_file = os.path.join(scratch, "port")
        process = subprocess.Popen([server, model, "--device", "cpu", "--port", "0", "--port-file", port_file,
                                    "--served-model-name", "tiny"], env={**os.environ, "KUIPER_API_KEY": "secret"})
        try:
            end = time.monotonic() + 60
            while not os.path.exists(port_file) and time.monotonic() < end:
                time.sleep(0.05)
            with open(port_file, encoding="utf-8") as f:
                url = f"http://127.0.0.1:{int(f.read())}"
            # The clients try again while the model loads.
            client = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=20)
            for test in (chats, completions_and_models, errors, responses):
                test(client)
            messages(anthropic.Anthropic(base_url=url, api_key="secret"))
        finally:
            process.send_signal(signal.SIGTERM)
            expect("exit code", process.wait(timeout=60), 0)


if __name__ == "__main__":
    main()
