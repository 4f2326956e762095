"""A library beside others through cudnn-frontend, for benchmarks whose problems are Python classes.

Each library has a process of its own, since the frontend looks functions up once; the parent has them time one round
in turns. The L2 is flushed before each by reading 256 MB; times are medians. Needs torch with CUDA and
nvidia-cudnn-frontend.

A problem is made of (cudnn, torch, handle, shape, options, type); run() runs it, error() compares what that gives, and
workspace_bytes says what it needs.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys


def serve(path, kind):
    """A library's process: what it is told, a line each; an answer in JSON for each."""
    import torch

    torch.cuda.init()
    import cudnn

    library = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    cudnn._pybind_module._set_dlhandle_cudnn(library._handle)
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    flush = torch.ones(64 << 20, device="cuda")
    problem = None
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "build" in order:
                problem = None
                torch.cuda.empty_cache()
                problem = kind(cudnn, torch, handle, *order["build"])
                reply = {"error": problem.error() if order["check"] else None, "workspace": problem.workspace_bytes}
            else:
                times = []
                for _ in range(order["time"]):
                    flush.sum()
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                    problem.run()
                    end.record()
                    torch.cuda.synchronize()
                    times.append(begin.elapsed_time(end) * 1e3)
                reply = {"times": times}
        except Exception as failure:  # the frontend has several
            problem, reply = None, {"refused": f"{type(failure).__name__}: {failure}"[:300]}
        print(json.dumps(reply), file=answer, flush=True)


class Server:
    def __init__(self, path, script):
        self._process = subprocess.Popen([sys.executable, script, "--serve", path], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def send(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self):
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"refused": "the process ended"}

    def ask(self, **order):
        self.send(**order)
        return self.receive()


def _median(times):
    return sorted(times)[len(times) // 2] if times else None


def measure(servers, shape, name, options, io, rounds):
    row = {"name": f"{name} {'x'.join(map(str, shape))} {io}"}
    for server in servers.values():
        server.send(build=[shape, options, io], check=True)
    built = {who: server.receive() for who, server in servers.items()}
    times = {who: [] for who in servers}
    for turn in range(rounds + 1):
        for who, server in servers.items():
            if "refused" in built[who]:
                continue
            reply = server.ask(time=3)
            if turn > 0:
                times[who] += reply.get("times", [])
    for who in servers:
        row[who] = {**built[who], "us": _median(times[who])}
    return row


def parser(shapes):
    """What these benchmarks are asked."""
    of = argparse.ArgumentParser()
    of.add_argument("--cudnn")
    of.add_argument("--nvidia")
    of.add_argument("--also", action="append", default=[], help="NAME=LIBRARY, one more")
    of.add_argument("--shapes", default=",".join("x".join(map(str, shape)) for shape in shapes))
    of.add_argument("--serve")
    of.add_argument("--out")
    of.add_argument("--filter", default="")
    of.add_argument("--rounds", type=int, default=5)
    return of


def compare(arguments, script, combinations, line):
    """Measures each (name, options, type) of each shape, prints `line` of its row, shape, name and options, and writes
    all rows."""
    libraries = {"kiln": arguments.cudnn, "nvidia": arguments.nvidia,
                 **dict(also.split("=") for also in arguments.also)}
    servers = {who: Server(path, script) for who, path in libraries.items() if path}
    rows = []
    for shape in [tuple(map(int, shape.split("x"))) for shape in arguments.shapes.split(",")]:
        for name, options, io in combinations:
            if arguments.filter and name not in arguments.filter.split(","):
                continue
            row = measure(servers, shape, name, options, io, arguments.rounds)
            print(line(row, shape, name, options), flush=True)
            rows.append(row)
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    return rows
