"""kuiper_server and kuiper serve as programs: ports, signals, answers equal to those of qwen3_infer."""
import base64
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from cli_harness import ARGS, CliTest, default_signals, fnv1a64, program

QUESTIONS = ["What is %d + %d?" % (a, b) for a in range(2, 7) for b in range(1, 6)]


class Serve(CliTest):
    def start(self, *args, name="kuiper_server", env=None, model=None, open_files=None):
        """-> (process, port) of a server that is ready."""
        def prepare():
            default_signals()
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        port_file = self.path("port")
        if os.path.exists(port_file):
            os.remove(port_file)
        log = open(self.path("log"), "w", encoding="utf-8")
        self.addCleanup(log.close)
        command = [program(name)] + (["serve"] if name == "kuiper" else [])
        process = subprocess.Popen(
            command + [model or self.qwen3, "--device", "cpu", "--port", "0", "--port-file", port_file, *args],
            stdout=subprocess.DEVNULL, stderr=log, preexec_fn=prepare, env=env)
        self.addCleanup(self.stop, process)
        self.wait_for(lambda: os.path.exists(port_file) or process.poll() is not None)
        self.assertIsNone(process.poll(), self.log())
        with open(port_file, encoding="utf-8") as f:
            port = int(f.read())
        self.wait_for(lambda: self.ask(port, "GET", "/health")[0] == 200)
        return process, port

    def stop(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def log(self):
        with open(self.path("log"), encoding="utf-8") as f:
            return f.read()

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "in vain; log:\n" + self.log())
            time.sleep(0.02)

    def ask(self, port, method, path, body=None, headers=None):
        """-> (status, text)"""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def chat(self, port, text, **fields):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24,
                "return_token_ids": True, **fields}
        status, text = self.ask(port, "POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, text)
        return text

    def streamed_ids(self, port, text):
        ids = []
        for line in self.chat(port, text, stream=True).splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    ids += choice["token_ids"]
        return ids

    def test_greedy_answers_are_those_of_the_program_alone_and_at_once(self):
        requests = "".join(json.dumps({"custom_id": str(i), "messages": [{"role": "user", "content": q}],
                                       "temperature": 0, "max_tokens": 24}) + "\n"
                           for i, q in enumerate(QUESTIONS))
        answers = self.path("answers.jsonl")
        self.ok(self.qwen3, "--device", "cpu", "--input", self.path("r.jsonl", requests), "--output", answers,
                name="kuiper_batch")
        with open(answers, encoding="utf-8") as f:
            expected = [json.loads(line)["token_ids_fnv1a64"] for line in f]
        # The batch's answers are qwen3_infer's (cli_batch.py); one is looked at here.
        single = self.ok(self.qwen3, "-p", QUESTIONS[0], "--max-tokens", "24", "-o", "json", "--device", "cpu").json()
        self.assertEqual(single["token_ids_fnv1a64"], expected[0])
        process, port = self.start("--max-num-seqs", "8")
        found = {}

        def work(i):
            body = json.loads(self.chat(port, QUESTIONS[i]))
            found[i] = fnv1a64(body["choices"][0]["token_ids"]), fnv1a64(self.streamed_ids(port, QUESTIONS[i]))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(QUESTIONS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[i] for i in range(len(QUESTIONS))], [(e, e) for e in expected])
        alone = json.loads(self.chat(port, QUESTIONS[3]))
        self.assertEqual(fnv1a64(alone["choices"][0]["token_ids"]), expected[3])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log())

    def test_pictures_are_seen_as_the_program_sees_them(self):
        model = os.path.join(ARGS.models, "tiny-qwen3-vl")
        _, port = self.start(model=model)
        for name, question in (("circle.png", "What color is it?"), ("number.png", "Read the number.")):
            picture = os.path.join(model, "samples", name)
            expected = self.ok(model, "--device", "cpu", "--image", picture, "-p", question, "--temp", "0",
                               "--max-tokens", "24", "-o", "json", name="qwen3_vl_infer").json()
            with open(picture, "rb") as f:
                url = "data:image/png;base64," + base64.b64encode(f.read()).decode()
            content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
            body = json.loads(self.chat(port, content))
            self.assertEqual(fnv1a64(body["choices"][0]["token_ids"]), expected["token_ids_fnv1a64"], body)
            self.assertEqual(fnv1a64(self.streamed_ids(port, content)), expected["token_ids_fnv1a64"])
            self.assertEqual(body["usage"]["prompt_tokens_details"]["image_tokens"], expected["usage"]["image_tokens"])

    def test_flags_may_stand_in_a_file(self):
        config = self.path("serve.conf", "# of a service\n\nserved-model-name = from-file\nmax_num_seqs=3\nprefix-cache\n"
                                         "default-temp = 0.5\n")
        _, port = self.start("--config", config, "--default-temp", "0.25")
        props = json.loads(self.ask(port, "GET", "/props")[1])
        self.assertEqual((props["model"], props["total_slots"]), ("from-file", 3))
        self.assertEqual(props["default_generation_settings"]["temperature"], 0.25)
        for text, line in (("port = 1\nno-such-flag = 2\n", 2), ("port = much\n", 1), ("config = x\n", 1)):
            result = self.run_cli(self.qwen3, "--config", self.path("bad.conf", text), name="kuiper_server")
            self.assertEqual(result.rc, 2, result.err)
            self.assertIn("bad.conf, line %d: " % line, result.error_lines()[0])
        self.assertEqual(self.run_cli(self.qwen3, "--config", "/no/file", name="kuiper_server").rc, 5)

    def test_sigterm_lets_streams_end(self):
        process, port = self.start(name="kuiper")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.addCleanup(connection.close)
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 400,
                "ignore_eos": True, "temperature": 0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        text = response.readline().decode()
        process.send_signal(signal.SIGTERM)
        text += response.read().decode()
        self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-200:])
        self.assertIn('"finish_reason":"length"', text)
        self.assertEqual(process.wait(timeout=60), 0, self.log())
        self.assertIn("draining: answers have 30 s to end; a second signal ends them", self.log())

    def test_a_service_manager_hears_of_it(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            name = "kuiper-%d" % os.getpid()
            manager.bind("\0" + name)
            manager.settimeout(60)
            env = {**os.environ, "NOTIFY_SOCKET": "@" + name, "WATCHDOG_USEC": "500000"}
            process, port = self.start(env=env)
            told = ""
            while told.count("WATCHDOG=1\n") < 3 or "running, " not in told:
                told += manager.recv(4096).decode()
            self.assertLess(told.index("READY=1\n"), told.index("WATCHDOG=1\n"))
            process.send_signal(signal.SIGTERM)
            while "STOPPING=1\n" not in told:
                told += manager.recv(4096).decode()
            self.assertEqual(process.wait(timeout=60), 0, self.log())

    def test_the_unit_of_the_document_is_one(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with open(os.path.join(ARGS.source, "docs", "server.md"), encoding="utf-8") as f:
            unit = f.read().split("```ini\n")[1].split("```")[0]
        unit = unit.replace("/usr/local/bin/kuiper_server", os.path.abspath(program("kuiper_server")))
        for text, right in ((unit, True), (unit.replace("WatchdogSec", "WatchdogSecs"), False)):
            path = self.path("kuiper.service", text)
            result = subprocess.run(["systemd-analyze", "--man=no", "verify", path], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, timeout=240, check=False)
            about = [line for line in result.stdout.decode().splitlines() if "kuiper" in line]
            self.assertEqual(not about, right, result.stdout.decode())

    def test_open_files_bound_the_connections(self):
        _, port = self.start(open_files=80)
        self.assertIn("warning: the system's limit of open files leaves room for 16 connections, not 4096", self.log())
        clients = []
        for _ in range(17):
            clients.append(http.client.HTTPConnection("127.0.0.1", port, timeout=120))
            self.addCleanup(clients[-1].close)

        def status(client):
            client.request("GET", "/ping")
            response = client.getresponse()
            response.read()
            return response.status

        self.wait_for(lambda: "http_connections{model_name=\"tiny-qwen3\"} 1\n" in self.ask(port, "GET", "/metrics")[1])
        self.assertEqual([status(client) for client in clients], [200] * 16 + [503])
        clients[0].close()
        self.wait_for(lambda: self.ask(port, "GET", "/ping")[0] == 200)

    def test_promtool_reads_the_metrics(self):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed")
        _, port = self.start("--served-model-name", "a \"b\" \\ \u00e9")
        self.chat(port, "Hi")
        self.assertEqual(self.ask(port, "GET", "/none")[0], 404)
        metrics = self.ask(port, "GET", "/metrics")[1]

        def findings(text):
            result = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, timeout=60, check=False)
            return result.returncode, result.stdout.decode().splitlines()

        # vLLM's names have a colon, and one that is no counter ends like one.
        code, lines = findings(metrics)
        left = [line for line in lines if not line.endswith("metric names should not contain ':'") and line !=
                "kuiper:iteration_tokens_total non-counter metrics should not have \"_total\" suffix"]
        self.assertEqual((code, left), (3, []))
        self.assertEqual(findings(metrics.replace("le=\"+Inf\"", "le=\"", 1))[0], 1)

    def test_a_second_signal_ends_at_once(self):
        process, port = self.start()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.addCleanup(connection.close)
        body = {"prompt": "x", "stream": True, "ignore_eos": True, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body))
        connection.getresponse().readline()
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: not self.accepts(port))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)

    def accepts(self, port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def commands_of_the_document(self, *replacements, **kwargs):
        """What a shell does with the first commands of docs/server.md, up to the one that fails."""
        if shutil.which("curl") is None:
            self.skipTest("curl is not installed")
        with open(os.path.join(ARGS.source, "docs", "server.md"), encoding="utf-8") as f:
            commands = f.read().split("```sh\n")[1].split("```")[0]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        for before, after in (("tools/quickstart.sh\n", ""), ("8000", str(port)), ("build/demo/", ARGS.bin + "/"),
                              *replacements):
            self.assertIn(before, commands)
            commands = commands.replace(before, after)
        return subprocess.run([shutil.which("bash"), "-c", "set -e\n" + commands + "wait"], cwd=ARGS.source, timeout=120,
                              capture_output=True, preexec_fn=default_signals, check=False, **kwargs)

    def test_the_commands_of_the_document_end_where_the_server_does_not_start(self):
        done = self.commands_of_the_document(("demo/models/tiny-qwen3", "/no/model"), ("--retry 30", "--retry 2"))
        self.assertIn(b"error: model file not found: /no/model", done.stderr)
        self.assertEqual((done.returncode, done.stdout), (7, b""), "curl could not connect")
        no_curl = self.commands_of_the_document(("demo/models/tiny-qwen3", "/no/model"), env={"PATH": "/nonexistent"})
        self.assertEqual(no_curl.returncode, 127, no_curl.stderr)

    def test_the_commands_of_the_document_work(self):
        result = self.commands_of_the_document()
        out = result.stdout.decode()
        self.assertIn('"object":"chat.completion"', out, result.stderr.decode())
        self.assertTrue(out.endswith("data: [DONE]\n\n"), out[-300:])
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_keys_names_and_unix_sockets(self):
        keys = self.path("keys", "# one\nsecret\n")
        path = os.path.join(self.dir, "socket")
        _, port = self.start("--api-key-file", keys, "--served-model-name", "a", "--served-model-name", "b")
        self.assertEqual(self.ask(port, "GET", "/v1/models")[0], 401)
        status, text = self.ask(port, "GET", "/v1/models", headers={"Authorization": "Bearer secret"})
        self.assertEqual((status, [m["id"] for m in json.loads(text)["data"]]), (200, ["a", "b"]))
        log = open(self.path("log2"), "w", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen([program("kuiper_server"), self.qwen3, "--device", "cpu", "--unix-socket", path],
                                   stdout=subprocess.DEVNULL, stderr=log, preexec_fn=default_signals,
                                   env={**os.environ, "KUIPER_API_KEY": "other"})
        self.addCleanup(self.stop, process)
        with socket.socket(socket.AF_UNIX) as s:
            self.wait_for(lambda: s.connect_ex(path) == 0)  # it is bound a moment before it listens
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := s.recv(4096):
                answer += part
        self.assertTrue(answer.startswith(b"HTTP/1.1 401 "), answer)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertFalse(os.path.exists(path))

    def test_addresses_and_files_that_cannot_be_used(self):
        _, port = self.start()
        taken = self.run_cli(self.qwen3, "--device", "cpu", "--port", str(port), name="kuiper_server")
        self.assertEqual(taken.rc, 2)
        self.assertIn("Address already in use", taken.error_lines()[0])
        self.assertIn("hint: --port chooses another one, 0 a free one", taken.err)
        for args in (["--api-key-file", self.path("none")], ["--host", "no.such.host.invalid"],
                     ["--port", "70000"], ["--reasoning-field", "x"], ["--kv-events-endpoint", "nowhere"]):
            result = self.run_cli(self.qwen3, "--device", "cpu", *args, name="kuiper_server")
            self.assertEqual(result.rc, 2, result.err)
            self.assertEqual(len(result.error_lines()), 1, result.err)
        self.assertEqual(self.run_cli("/no/model", name="kuiper_server").rc, 3)
