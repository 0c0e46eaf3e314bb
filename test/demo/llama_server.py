"""Stands for llama-server in llama.cpp's own tests: becomes `kuiper serve` with the flags that mean the same there, and
drops the others. Whatever model is asked for, it serves those of KUIPER_LLAMA_MODELS.

    KUIPER_LLAMA_SERVER=SERVER KUIPER_LLAMA_MODELS=DIRECTORY python3 test/demo/llama_server.py FLAG...
"""
import argparse
import json
import os
import sys
import tempfile

# What these tests call the model where the server's name for it does not matter to llama-server.
NAMES_OF_TESTS = ["gpt-3.5-turbo-instruct", "gpt-3.5-turbo", "gpt-4.1", "davinci-002", "codellama70b", "test"]


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--host", "--alias", "--api-key", "--hf-repo", "--chat-template", "--chat-template-file", "--reasoning",
                 "--cors-origins", "--temp", "--seed", "--port", "--sleep-idle-seconds"):
        parser.add_argument(flag)
    for flag in ("--ctx-size", "--n-predict", "--parallel"):
        parser.add_argument(flag, type=int, default=0)
    return parser.parse_known_args()[0]


def with_template(model, template):
    """A folder with the files of the model and another chat template. The server reads it once, at its start."""
    folder = tempfile.mkdtemp()
    for name in os.listdir(model):
        os.symlink(os.path.join(model, name), os.path.join(folder, name))
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(template)
    return folder


def model_of(asked):
    sees = "gemma3" in (asked.hf_repo or "")
    model = os.path.join(os.environ["KUIPER_LLAMA_MODELS"], "tiny-qwen3-vl" if sees else "tiny-qwen3")
    if asked.chat_template_file:
        with open(asked.chat_template_file, encoding="utf-8") as f:
            return with_template(model, f.read())
    if asked.chat_template and " " in asked.chat_template:  # else the name of one that llama.cpp has built in
        return with_template(model, asked.chat_template)
    return model


def longest_context(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    return config.get("text_config", config)["max_position_embeddings"]


def main():
    asked = arguments()
    model = model_of(asked)
    command = [os.environ["KUIPER_LLAMA_SERVER"], model, "--device", "cpu"]
    for name in (asked.alias or "llama").split(",") + NAMES_OF_TESTS:
        command += ["--served-model-name", name]
    same = {"--host": asked.host, "--port": asked.port, "--temperature": asked.temp, "--seed": asked.seed,
            "--cors-origin": asked.cors_origins, "--sleep-idle-seconds": asked.sleep_idle_seconds}
    if asked.ctx_size > 0:
        same["--max-model-len"] = min(asked.ctx_size // max(asked.parallel, 1), longest_context(model))
    if asked.n_predict > 0:
        same["--max-output-tokens"] = asked.n_predict
    if asked.parallel > 0:
        same["--max-num-seqs"] = asked.parallel
    if asked.reasoning != "auto":  # the model that these tests are for does not think
        same["--enable-thinking"] = "true" if asked.reasoning == "on" else "false"
    for flag, value in same.items():
        if value is not None:
            command.append(f"{flag}={value}")
    environment = {**os.environ, **({"KUIPER_API_KEY": asked.api_key} if asked.api_key else {})}
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(main())
