"""kuiper_server as a deployment of Ray Serve: each replica runs a server of its own and hands requests on to it.

    serve run docs/examples/ray_serve.yaml            # with this folder in PYTHONPATH

Ray asks check_health; a replica that ends drains first. Each server's /metrics is at its own port.
"""
import asyncio
import os
import signal
import subprocess
import tempfile

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

NOT_HANDED_ON = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


@serve.deployment
class Kuiper:
    def __init__(self, model, arguments=()):
        self.folder = tempfile.TemporaryDirectory()
        port_file = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen(["kuiper_server", model, "--port", "0", "--port-file", port_file, *arguments])
        self.port_file, self.session = port_file, None

    async def url(self):
        while not os.path.exists(self.port_file):
            if self.process.poll() is not None:
                raise RuntimeError(f"kuiper_server ended with {self.process.returncode}")
            await asyncio.sleep(0.1)
        if self.session is None:
            self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        with open(self.port_file, encoding="utf-8") as file:
            return f"http://127.0.0.1:{int(file.read())}"

    async def check_health(self):
        url = await self.url()
        async with self.session.get(url + "/ping") as answer:
            answer.raise_for_status()

    async def __call__(self, request: Request):
        headers = {k: v for k, v in request.headers.items() if k.lower() not in NOT_HANDED_ON}
        url = await self.url()
        answer = await self.session.request(request.method, url + request.url.path, params=request.query_params,
                                            headers=headers, data=await request.body())

        async def parts():
            async with answer:  # a client that leaves ends this, and the server hears of it
                async for part in answer.content.iter_any():
                    yield part

        return StreamingResponse(parts(), answer.status, {k: v for k, v in answer.headers.items()
                                                          if k.lower() not in NOT_HANDED_ON})

    async def __del__(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def app(arguments):
    return Kuiper.bind(arguments["model"], tuple(arguments.get("arguments", ())))
