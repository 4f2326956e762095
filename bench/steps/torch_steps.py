#!/usr/bin/env python3
"""Training steps and first calls in unmodified PyTorch: Kiln's libcudnn.so.9 beside NVIDIA's on one GPU.

    bench/steps/torch_steps.py PATH/libcudnn.so.9 [--out FILE] [--commit HASH] [--rounds N] [--only REGEX]

One process for each library; both hold their network, and the parent lets them step in turn, so that clocks and
temperature are the same for both. A step is forward, loss, backward and SGD, its time that between two events.

    resnet50         AMP float16, channels last, 256 images of 224x224: step, memory at its highest
    efficientnet_b0  the same with 128 images and benchmark on: step, and the first step's time on the clock, with our
                     kernel cache empty and again with what that run left
    first            the first convolution of a process, CUDA awake already; our kernels on disk
    shape            a batch size not seen before, of a convolution seen before: forward and backward
    call             host time of a repeated convolution and of batch normalization
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "pytorch"))
import in_front

STEPS = {"resnet50": (256, False), "efficientnet_b0": (128, True)}


class Network:
    """A model and one batch that it is trained with again and again."""

    def __init__(self, torch, name):
        import torchvision

        batch, torch.backends.cudnn.benchmark = STEPS[name]
        torch.manual_seed(3)
        self.torch = torch
        self.model = getattr(torchvision.models, name)().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step(self):
        torch = self.torch
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            y = self.model(self.images)
            loss = torch.nn.functional.cross_entropy(y, self.labels)
        (loss * 128).backward()
        self.optimizer.step()

    def timed(self, count):
        """Milliseconds of each of `count` steps."""
        torch = self.torch
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            self.step()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def seconds_of(torch, work):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def convolution(torch, batch, backward):
    x = torch.randn(batch, 64, 56, 56, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    x.requires_grad_(backward)
    w.requires_grad_(backward)

    def work():
        y = torch.nn.functional.conv2d(x, w, padding=1)
        if backward:
            y.backward(y.detach())

    return work


def host_seconds(torch, work, count=200):
    """Median time of one call on the host, the device not waited for."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
    return statistics.median(times)


def calls(torch):
    """name -> work with small operands, so that the host is what is timed."""
    functional = torch.nn.functional
    x = torch.randn(1, 16, 8, 8, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(16, 16, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    ones, zeros = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    return {"conv2d": lambda: functional.conv2d(x, w, padding=1),
            "batch_norm": lambda: functional.batch_norm(x, zeros, ones, ones, zeros, training=True)}


class Answers:
    """What a child process can be asked for, by name."""

    def __init__(self, torch):
        self.torch, self.network = torch, None

    def network_first(self, name):
        self.torch.cuda.reset_peak_memory_stats()
        self.network = Network(self.torch, name)
        return seconds_of(self.torch, self.network.step)

    def steps(self, count):
        return self.network.timed(count)

    def peak(self):
        return self.torch.cuda.max_memory_allocated()

    def end_network(self):
        self.network = None
        self.torch.cuda.empty_cache()

    def first(self):
        work = convolution(self.torch, 32, False)
        return seconds_of(self.torch, work)

    def shape(self):
        """The known shape first; then the median of five new batch sizes, forward and backward apart."""
        torch, answer = self.torch, {}
        torch.backends.cudnn.benchmark = False
        for backward in (False, True):
            convolution(torch, 32, backward)()
            times = [seconds_of(torch, convolution(torch, batch, backward)) for batch in (33, 40, 48, 57, 64)]
            answer["backward" if backward else "forward"] = statistics.median(times)
        return answer

    def call(self):
        return {name: host_seconds(self.torch, work) for name, work in calls(self.torch).items()}


def child():
    import torch

    torch.zeros(8, device="cuda").add_(1)
    torch.cuda.synchronize()
    answers = Answers(torch)
    print("ANSWER " + json.dumps({"libraries": in_front.loaded_cudnn(), "device": torch.cuda.get_device_name(),
                                  "version": torch.backends.cudnn.version()}), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            print("ANSWER " + json.dumps({"ok": getattr(answers, name)(*arguments)}), flush=True)
        except Exception as error:
            print("ANSWER " + json.dumps({"error": f"{type(error).__name__}: {str(error)[:500]}"}), flush=True)


class Child:
    def __init__(self, environment):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child"], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[len("ANSWER "):])
        raise RuntimeError(f"a process ended with status {self.process.wait()}")

    def ask(self, name, *arguments):
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def pair(options, front):
    """A process with our library and one with NVIDIA's."""
    ours, nvidia = Child(front), Child(dict(os.environ))
    if os.path.abspath(options.library) not in ours.hello["libraries"]:
        raise RuntimeError(f"the process has {ours.hello['libraries']} and not {options.library}")
    return {"ours": ours, "nvidia": nvidia}


def alone(front, name, *arguments):
    """What a process of ours answers that ends with it, and leaves its kernels on disk."""
    process = Child(front)
    try:
        return process.ask(name, *arguments)
    finally:
        process.end()


def training(name, sides, rounds):
    answer = {side: {"first_s": process.ask("network_first", name), "ms": []} for side, process in sides.items()}
    for i in range(rounds + 1):
        for side, process in sides.items():
            times = process.ask("steps", 5)
            answer[side]["ms"] += times if i else []  # the first round warms up
    for side, process in sides.items():
        answer[side]["peak_bytes"] = process.ask("peak")
        process.ask("end_network")
        times = sorted(answer[side].pop("ms"))
        answer[side].update(median_ms=statistics.median(times), q25_ms=times[len(times) // 4], q75_ms=times[3 * len(times) // 4])
    return answer


def measure(name, options, front, result):
    """One JSON object of each of the list's names; device and version go to `result`. cold_s: our first call or step with nothing on disk."""
    row = {}
    if name in STEPS:
        row["cold_s"] = alone(front, "network_first", name)
    elif name == "first":
        row["cold_s"] = alone(front, "first")
    sides = pair(options, front)
    result.update(device=sides["nvidia"].hello["device"], nvidia_version=sides["nvidia"].hello["version"])
    try:
        if name in STEPS:
            return {**row, **training(name, sides, options.rounds)}
        return {**row, **{side: process.ask(name) for side, process in sides.items()}}
    finally:
        for process in sides.values():
            process.end()


def main(options):
    names = ["first", "resnet50", "efficientnet_b0", "shape", "call"]
    result = {"benchmark": "torch_steps", "commit": options.commit, "date": time.strftime("%FT%TZ", time.gmtime()), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        front = dict(in_front.environment(options.library), KILN_CACHE_DIR=os.path.join(folder, "cache"))
        for name in names:
            if not re.search(options.only, name):
                continue
            row = {"name": name}
            try:
                row.update(measure(name, options, front, result))
            except RuntimeError as error:
                row["error"] = str(error)
            result["rows"].append(row)
            print(json.dumps(row), flush=True)
            if options.out:
                with open(options.out, "w") as file:
                    json.dump(result, file, indent=1)
    return 1 if any("error" in row for row in result["rows"]) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child()
        sys.exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rounds", type=int, default=6)
    sys.exit(main(parser.parse_args()))
