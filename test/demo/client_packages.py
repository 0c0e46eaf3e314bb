"""Client packages that others wrote, each on its main path: an answer whole and streamed, an agent that calls a tool, the
list of models. What they ask for and is refused is in REFUSED.

    python3 test/demo/client_packages.py SERVER MODEL CLIENT...

Ends with 77 (skipped) where a client's package is not installed, with 1 where KUIPER_REQUIRE_CLIENTS names the client.
"""
import asyncio
import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

import calling_model
from served import Server

KEY = "secret"
QUESTION = "What is 2 + 3?"
SUM = "What is the sum of 2 and 3?"  # for the model that calls the tool
# What is refused, nearly all of it because it needs structured output: {client: what it is there}.
REFUSED = {
    "openai": ["response_format json_object", "parse", "tool_choice required", "tool_choice named"],
    "anthropic": ["tool_choice any", "tool_choice tool"],
    "llm": ["--schema"],
    "langchain": ["json_schema", "function_calling", "json_mode", "tool_choice any"],
    "agents": ["output_type, chat", "output_type, responses"],
    "pydantic_ai": ["output_type", "ToolOutput", "NativeOutput", "PromptedOutput"],
    "litellm": ["response_format"],
    "llama_index": ["structured_predict"],
}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} is not {wanted!r}")
    print("ok:", what)


def expect_refusals(client, requests):
    """`requests`: {what: function that asks for it}."""
    expect("what is tried of what is refused", list(requests), REFUSED[client])
    for what, ask in requests.items():
        try:
            answer = ask()
        except Exception as error:  # pylint: disable=broad-except  # each client has types of its own
            if not re.search("is not (supported|available)", str(error)):  # the server's words
                raise
            print("ok, refused:", what)
        else:
            raise AssertionError(f"{what} is answered ({answer!r}): take it out of REFUSED and try what it gives")


class Servers:
    """The given model, and one that calls the tool `add`."""

    def __init__(self, url, calling_url, tokenizer, scratch):
        self.root, self.calling_root, self.tokenizer, self.scratch = url, calling_url, tokenizer, scratch
        self.url, self.calling_url = url + "/v1", calling_url + "/v1"


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    CALLS.append((a, b))
    return a + b


CALLS = []  # of `add`


def expect_call(what, answer):
    expect(what, (answer, CALLS), (calling_model.ANSWER, [tuple(calling_model.ARGUMENTS.values())]))
    CALLS.clear()


ADD = {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}


def openai(servers):
    import openai
    from pydantic import BaseModel

    class Sum(BaseModel):
        value: int

    client = openai.OpenAI(base_url=servers.calling_url, api_key=KEY)
    tools, messages = [{"type": "function", "function": ADD}], [{"role": "user", "content": SUM}]
    answer = client.chat.completions.create(model="caller", messages=messages, tools=tools).choices[0]
    with client.chat.completions.stream(model="caller", messages=messages, tools=tools) as stream:
        streamed = stream.get_final_completion().choices[0]
    expect("calls of a stream", [c.function.arguments for c in streamed.message.tool_calls],
           [c.function.arguments for c in answer.message.tool_calls])
    call = answer.message.tool_calls[0]
    messages += [answer.message, {"role": "tool", "tool_call_id": call.id,
                                  "content": str(add(**json.loads(call.function.arguments)))}]
    expect_call("tool loop of a chat", client.chat.completions.create(model="caller", messages=messages, tools=tools)
                .choices[0].message.content)
    tools, items = [{"type": "function", **ADD}], [{"role": "user", "content": SUM}]
    answer = client.responses.create(model="caller", input=items, tools=tools, store=False)
    call = answer.output[-1]
    items += [*answer.output, {"type": "function_call_output", "call_id": call.call_id,
                               "output": str(add(**json.loads(call.arguments)))}]
    expect_call("tool loop of responses", client.responses.create(model="caller", input=items, tools=tools, store=False).output_text)
    expect("models", [m.id for m in client.models.list()], ["caller"])

    fields = {"model": "caller", "messages": messages[:1]}
    chat, offered = client.chat.completions, [openai.pydantic_function_tool(Sum)]
    named = {"type": "function", "function": {"name": "Sum"}}
    expect_refusals("openai", {
        "response_format json_object": lambda: chat.create(**fields, response_format={"type": "json_object"}),
        "parse": lambda: chat.parse(**fields, response_format=Sum),
        "tool_choice required": lambda: chat.create(**fields, tools=offered, tool_choice="required"),
        "tool_choice named": lambda: chat.create(**fields, tools=offered, tool_choice=named)})


def anthropic(servers):
    import anthropic
    client = anthropic.Anthropic(base_url=servers.calling_root, api_key=KEY)
    tools = [{"name": ADD["name"], "description": ADD["description"], "input_schema": ADD["parameters"]}]
    fields, messages = {"model": "caller", "max_tokens": 100, "tools": tools}, [{"role": "user", "content": SUM}]
    with client.messages.stream(**fields, messages=messages) as stream:
        streamed = stream.get_final_message()
    answer = client.messages.create(**fields, messages=messages)
    call = answer.content[-1]
    expect("a call of a stream", streamed.content[-1].input, call.input)
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(add(**call.input))}]}]
    expect_call("tool loop", client.messages.create(**fields, messages=messages).content[0].text)

    @anthropic.beta_tool(name="add")
    def told(a: int, b: int) -> str:
        """Adds two numbers."""
        return str(add(a, b))

    # It asks for a conversation that the server keeps, and sends whole ones where there is none.
    expect_call("tool runner", client.beta.messages.tool_runner(
        model="caller", max_tokens=100, tools=[told], messages=messages[:1]).until_done().content[0].text)
    expect("models", [m.id for m in client.models.list()], ["caller"])
    expect_refusals("anthropic", {
        "tool_choice any": lambda: client.messages.create(**fields, messages=messages[:1], tool_choice={"type": "any"}),
        "tool_choice tool": lambda: client.messages.create(**fields, messages=messages[:1],
                                                           tool_choice={"type": "tool", "name": "add"})})


def llm(servers):
    """The program, as it is called in a shell."""
    folder = os.path.join(servers.scratch, "llm")
    os.makedirs(folder)
    with open(os.path.join(folder, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
        json.dump([{"model_id": "tiny", "model_name": "tiny", "api_base": servers.url, "api_key_name": "openai"},
                   {"model_id": "caller", "model_name": "caller", "api_base": servers.calling_url, "api_key_name": "openai",
                    "supports_tools": True, "supports_schema": True}], f)  # YAML has all of JSON

    def run(*args):
        done = subprocess.run([sys.executable, "-m", "llm", *args], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": KEY})
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    options = ("-m", "tiny", "-o", "temperature", "0", "-o", "max_tokens", "40")
    expect("models", ["OpenAI Chat: " + name in run("models") for name in ("tiny", "caller")], [True, True])
    whole = run(*options, "--no-stream", QUESTION)
    expect("streamed", run(*options, QUESTION), whole)
    expect("continued", bool(run(*options, "-c", "What is 1 + 1?")), True)
    function = "def add(a: int, b: int) -> int:\n    print('called', a, b)\n    return a + b"
    expect("tool", run("-m", "caller", "--functions", function, SUM), f"called 2 3\n{calling_model.ANSWER}")
    expect_refusals("llm", {"--schema": lambda: run("-m", "caller", "--schema", "value int", SUM)})


def langchain(servers):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAI
    from pydantic import BaseModel

    class Sum(BaseModel):
        value: int

    def model(**fields):
        return ChatOpenAI(**{"base_url": servers.url, "api_key": KEY, "model": "tiny", "temperature": 0, "max_tokens": 40,
                             **fields})

    for name, fields in (("chat", {}), ("responses", {"use_responses_api": True})):
        whole = model(**fields).invoke(QUESTION)
        expect(f"streamed, {name}", "".join(part.text for part in model(**fields).stream(QUESTION)), whole.text)
    expect("batch", len(model().batch([QUESTION, "Hello"])), 2)
    expect("completion", bool(OpenAI(base_url=servers.url, api_key=KEY, model="tiny", temperature=0, max_tokens=8).invoke("The red")),
           True)
    for name, responses in (("chat", False), ("responses", True)):
        caller = model(base_url=servers.calling_url, model="caller", use_responses_api=responses)
        agent, messages = caller.bind_tools([tool(add)]), [HumanMessage(SUM)]
        messages.append(agent.invoke(messages))
        messages += [ToolMessage(str(add(**call["args"])), tool_call_id=call["id"]) for call in messages[-1].tool_calls]
        expect_call(f"tool loop, {name}", agent.invoke(messages).text)
    caller = model(base_url=servers.calling_url, model="caller")
    expect_refusals("langchain", {
        **{method: lambda method=method: caller.with_structured_output(Sum, method=method).invoke(SUM)
           for method in ("json_schema", "function_calling", "json_mode")},
        "tool_choice any": lambda: caller.bind_tools([tool(add)], tool_choice="any").invoke(SUM)})


def agents(servers):
    import agents
    from openai import AsyncOpenAI
    from pydantic import BaseModel

    class Sum(BaseModel):
        value: int

    agents.set_tracing_disabled(True)
    models = {}
    for name, kind in (("chat", agents.OpenAIChatCompletionsModel), ("responses", agents.OpenAIResponsesModel)):
        client = AsyncOpenAI(base_url=servers.calling_url, api_key=KEY)
        models[name] = kind(model="caller", openai_client=client)

    def agent(name, **fields):
        return agents.Agent(name="adder", instructions="Add.", model=models[name], **fields)

    async def streamed(name):
        run = agents.Runner.run_streamed(agent(name, tools=[agents.function_tool(add)]), SUM)
        async for _ in run.stream_events():
            pass
        return run.final_output

    async def talk():
        refusals = {}
        for name in models:
            expect(f"answer, {name}", (await agents.Runner.run(agent(name), SUM)).final_output, calling_model.ANSWER)
            run = await agents.Runner.run(agent(name, tools=[agents.function_tool(add)]), SUM)
            expect_call(f"agent, {name}", run.final_output)
            expect_call(f"streamed agent, {name}", await streamed(name))
            try:
                await agents.Runner.run(agent(name, output_type=Sum), SUM)
                refusals[name] = None
            except Exception as error:  # pylint: disable=broad-except
                refusals[name] = error
        return refusals

    def result(error):
        if error is not None:
            raise error

    refusals = asyncio.run(talk())
    expect_refusals("agents", {f"output_type, {name}": lambda error=error: result(error) for name, error in refusals.items()})


def pydantic_ai(servers):
    from pydantic import BaseModel
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Sum(BaseModel):
        value: int

    def model(kind):
        return kind("caller", provider=OpenAIProvider(base_url=servers.calling_url, api_key=KEY))

    async def streamed(agent):
        async with agent.run_stream(SUM) as answer:
            return "".join([part async for part in answer.stream_text(delta=True)])

    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        expect(f"answer, {kind.__name__}", Agent(model(kind)).run_sync(SUM).output, calling_model.ANSWER)
        agent = Agent(model(kind), tools=[add])
        expect_call(f"agent, {kind.__name__}", agent.run_sync(SUM).output)
        expect_call(f"streamed agent, {kind.__name__}", asyncio.run(streamed(Agent(model(kind), tools=[add]))))
    outputs = {"output_type": Sum, "ToolOutput": ToolOutput(Sum), "NativeOutput": NativeOutput(Sum),
               "PromptedOutput": PromptedOutput(Sum)}
    expect_refusals("pydantic_ai", {
        name: lambda output=output: Agent(model(OpenAIChatModel), output_type=output).run_sync(SUM).output
        for name, output in outputs.items()})


def litellm(servers):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look for prices on another host
    import litellm
    messages = [{"role": "user", "content": QUESTION}]

    def ask(model, root, **fields):
        base = root if model.startswith("anthropic/") else root + "/v1"
        return litellm.completion(**{"model": model, "api_base": base, "api_key": KEY, "max_tokens": 40, "messages": messages,
                                     **fields})

    for provider in ("openai", "hosted_vllm", "lm_studio", "llamafile", "anthropic", "openai/responses"):
        whole = ask(f"{provider}/tiny", servers.root, temperature=0).choices[0].message.content
        text = "".join(part.choices[0].delta.content or "" for part in
                       ask(f"{provider}/tiny", servers.root, temperature=0, stream=True))
        expect(f"streamed, {provider}", text, whole)
        tools, history = [{"type": "function", "function": ADD}], [{"role": "user", "content": SUM}]
        answer = ask(f"{provider}/caller", servers.calling_root, messages=history, tools=tools).choices[0].message
        history += [answer.model_dump()]
        history += [{"role": "tool", "tool_call_id": call.id, "content": str(add(**json.loads(call.function.arguments)))}
                    for call in answer.tool_calls]
        expect_call(f"tool loop, {provider}", ask(f"{provider}/caller", servers.calling_root, messages=history, tools=tools)
                    .choices[0].message.content)
    expect("models", litellm.get_valid_models(check_provider_endpoint=True, custom_llm_provider="hosted_vllm", api_base=servers.url,
                                              api_key=KEY), ["tiny"])
    expect_refusals("litellm", {"response_format": lambda: ask("openai/tiny", servers.root,
                                                               response_format={"type": "json_object"})})


def llama_index(servers):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.llms.openai_like import OpenAILike
    from pydantic import BaseModel

    class Sum(BaseModel):
        value: int

    def model(**fields):
        return OpenAILike(**{"model": "tiny", "api_base": servers.url, "api_key": KEY, "is_chat_model": True, "temperature": 0,
                             "max_tokens": 40, "context_window": 4096, **fields})

    messages = [ChatMessage(role="user", content=QUESTION)]
    whole = model().chat(messages).message.content
    expect("streamed chat", "".join(part.delta or "" for part in model().stream_chat(messages)), whole)
    completing = model(is_chat_model=False, max_tokens=8)
    expect("streamed completion", "".join(part.delta for part in completing.stream_complete("The red")),
           completing.complete("The red").text)
    caller = model(model="caller", api_base=servers.calling_url, is_function_calling_model=True)

    async def act(streaming):
        return str(await FunctionAgent(tools=[add], llm=caller, streaming=streaming).run(SUM))

    for streaming in (False, True):
        expect_call(f"agent, streaming={streaming}", asyncio.run(act(streaming)))
    expect_refusals("llama_index", {"structured_predict": lambda: caller.structured_predict(Sum, PromptTemplate(SUM))})


def lm_eval(servers):
    """Loglikelihoods, and answers of two interfaces, of a task of its own."""
    folder = os.path.join(servers.scratch, "lm_eval")
    os.makedirs(folder)
    with open(os.path.join(folder, "sums.jsonl"), "w", encoding="utf-8") as f:
        for a, b in ((2, 3), (4, 5), (1, 7)):
            print(json.dumps({"question": f"What is {a} + {b}?", "answers": [str(a + b), "red"]}), file=f)
    task = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": os.path.join(folder, "sums.jsonl")}},
            "test_split": "test", "doc_to_text": "{{question}}"}
    choices = {**task, "task": "choices", "output_type": "multiple_choice", "doc_to_choice": "{{answers}}", "doc_to_target": 0}
    words = {**task, "task": "words", "output_type": "generate_until", "doc_to_target": "{{answers[0]}}",
             "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 40}, "metric_list": [{"metric": "exact_match"}]}
    for name, content in (("choices", choices), ("words", words)):
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:
            json.dump(content, f)

    def run(model, path, task, *args, **fields):
        arguments = {"model": "tiny", "base_url": servers.url + path, "num_concurrent": 1, "max_retries": 1, **fields}
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "run", "--model", model, "--tasks", task, "--include_path", folder, "--output_path",
             folder, "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()), *args],
            capture_output=True, text=True, timeout=300, check=False, cwd=folder,
            env={**os.environ, "OPENAI_API_KEY": KEY, "HF_HOME": folder, "HF_HUB_OFFLINE": "1"})
        expect(f"{model} of {task}: {done.stderr if done.returncode else 'done'}", done.returncode, 0)
        return done.stdout

    local = {"tokenizer_backend": "huggingface", "tokenizer": servers.tokenizer}
    expect("table of loglikelihoods", "|choices|" in run("local-completions", "/completions", "choices", "--batch_size", "3", **local)
           .replace(" ", ""), True)
    run("local-completions", "/completions", "words", **local)
    run("local-chat-completions", "/chat/completions", "words", "--apply_chat_template")


# Of torch, which is several GB, guidellm uses the loop over its requests.
TORCH = {
    "__init__.py": """from . import utils
class Tensor: pass
class Generator:
    def manual_seed(self, seed): pass
""",
    "utils/__init__.py": "from . import data\n",
    "utils/data/__init__.py": "from . import dataloader\nfrom .dataset import IterableDataset\ndef get_worker_info(): return None\n",
    "utils/data/dataset.py": "import typing\nclass IterableDataset(typing.Generic[typing.TypeVar('T')]): pass\n",
    "utils/data/dataloader.py": """import typing
class DataLoader(typing.Generic[typing.TypeVar('T')]):
    def __init__(self, dataset, collate_fn, **others):
        self.dataset, self.collate_fn = dataset, collate_fn
    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)
""",
}


def guidellm(servers):
    libraries = os.path.join(servers.scratch, "libraries")
    for name, content in TORCH.items():
        path = os.path.join(libraries, "torch", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
    report = os.path.join(servers.scratch, "guidellm.json")
    done = subprocess.run(
        [sys.executable, "-m", "guidellm", "run", "--backend", f"kind=openai_http,target={servers.root},api_key={KEY}", "--profile",
         "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=12", "--tokenizer",
         f"kind=hf_auto,model={servers.tokenizer}", "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16", "--output",
         f"kind=json,path={report}"], capture_output=True, text=True, timeout=300, check=False, cwd=servers.scratch,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "USE_TORCH": "0", "PYTHONPATH": libraries})
    expect("exit code " + (done.stderr + done.stdout if done.returncode else "of guidellm"), done.returncode, 0)
    with open(report, encoding="utf-8") as f:
        totals = json.load(f)["benchmarks"][0]["metrics"]["request_totals"]
    expect("requests", (totals["successful"], totals["errored"]), (12, 0))


# {name: (function, module that must be there)}
CLIENTS = {"openai": (openai, "openai"), "anthropic": (anthropic, "anthropic"), "llm": (llm, "llm"),
           "langchain": (langchain, "langchain_openai"), "agents": (agents, "agents"), "pydantic_ai": (pydantic_ai, "pydantic_ai"),
           "litellm": (litellm, "litellm"), "llama_index": (llama_index, "llama_index"), "lm_eval": (lm_eval, "lm_eval"),
           "guidellm": (guidellm, "guidellm")}


def main():
    program, model, *names = sys.argv[1:]
    absent = [name for name in names if importlib.util.find_spec(CLIENTS[name][1]) is None]
    if absent:
        print("skipped: not installed:", *absent)
        sys.exit(1 if set(absent) & set(os.environ.get("KUIPER_REQUIRE_CLIENTS", "").split()) else 77)
    os.environ["KUIPER_API_KEY"] = KEY
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        caller = calling_model.write_model(os.path.join(scratch, "caller"), model)
        servers = [stack.enter_context(Server(program, path, scratch, "--max-queue", "1000", name=name))
                   for path, name in ((model, "tiny"), (caller, "caller"))]
        for name in names:
            print(f"== {name}", flush=True)
            CLIENTS[name][0](Servers(*(server.url for server in servers), os.path.abspath(model), scratch))


if __name__ == "__main__":
    main()
