"""Requests answered by processes of one library each, forked from one that has imported PyTorch already.

Importing takes seconds, forking milliseconds, and PyTorch keeps what it once chose for a convolution, so that
each way of choosing wants a process of its own. The importing process itself never touches CUDA, which does not
survive a fork.

    side = Side(script, environment, jobs)     # runs `script --serve`
    for future in as_completed(side.ask(requests)): future.result()

A request is a dict; with "until", a time of time.monotonic(), it is not begun after that, and ended then. An answer is
the last dict that `tell` was given, with "wall_s", "cpu_s" and, where the process did not come to its end, "died": why.
"""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

MARK = "ANSWER "


class Side:
    def __init__(self, script, environment, jobs):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(script), "--serve", str(jobs)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, requests):
        """Futures of the answers, in the order of the requests, which are begun in this order. Once only."""
        futures = [concurrent.futures.Future() for _ in requests]
        threading.Thread(target=self._talk, args=(requests, futures), daemon=True).start()
        return futures

    def _talk(self, requests, futures):
        try:
            self.process.stdin.write("".join(json.dumps(request) + "\n" for request in requests))
            self.process.stdin.close()
            for line in self.process.stdout:
                if line.startswith(MARK):
                    answer = json.loads(line[len(MARK):])
                    futures[answer.pop("index")].set_result(answer)
        finally:
            self.process.stdout.close()
            status = self.process.wait()
            for future in futures:
                if not future.done():
                    future.set_result({"died": f"the process that it was to be forked from ended with status {status}"})


def _end_of(text):
    return text.strip()[-600:]


def _read(path):
    with open(path, errors="replace") as file:
        return file.read()


def _answer_of(out):
    """The last whole answer in a child's output, or {}."""
    for line in reversed(out.splitlines()):
        if line.startswith(MARK) and line.endswith("}"):
            return json.loads(line[len(MARK):])
    return {}


class _Child:
    """A request under way. What it prints goes to files, so that it can die in any way."""

    def __init__(self, folder, index, request, answer):
        self.index, self.begin, self.clock = index, time.monotonic(), time.time()
        self.path = os.path.join(folder, str(index))
        self.limit = request["until"] - self.begin if "until" in request else None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(request, answer)

    def _run(self, request, answer):
        status = 1
        try:
            for number, end in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(self.path + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            if self.limit is not None:
                signal.setitimer(signal.ITIMER_REAL, self.limit)  # whose default is the process' end, whatever it is in
            answer(request, lambda told: print(MARK + json.dumps(told), flush=True))
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def ended(self, status, usage):
        answer = _answer_of(_read(self.path + ".out"))
        told = os.stat(self.path + ".out").st_mtime - self.clock  # its end is noticed later, when another is to begin
        answer.update(index=self.index, wall_s=round(told, 1), cpu_s=round(usage.ru_utime + usage.ru_stime, 1))
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            answer["died"] = (f"not done after {self.limit:.0f} s" if code == -signal.SIGALRM else
                              f"exit status {code}: {_end_of(_read(self.path + '.err'))}")
        return answer


def serve(answer, jobs, prepare=lambda request: None):
    """Answers the requests on stdin, `jobs` at a time. `answer(request, tell)` runs in a child; `prepare(request)` before it
    is forked, where what it makes is shared by later ones."""
    running = {}

    def wait():
        pid, status, usage = os.wait4(-1, 0)
        print(MARK + json.dumps(running.pop(pid).ended(status, usage)), flush=True)

    requests = [json.loads(line) for line in sys.stdin]
    with tempfile.TemporaryDirectory() as folder:
        for index, request in enumerate(requests):
            while len(running) >= jobs:
                wait()
            if request.get("until", float("inf")) <= time.monotonic():
                print(MARK + json.dumps({"index": index, "not_begun": True}), flush=True)
                continue
            prepare(request)
            child = _Child(folder, index, request, answer)
            running[child.pid] = child
        while running:
            wait()
