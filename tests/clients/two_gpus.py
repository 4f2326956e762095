"""Batch norm over two GPUs by two processes, through cudnn-frontend on a libcudnn.so.9 named on the command line:
forward and backward against float64 with the whole batch, and its time beside that of a local batch norm with an
all-reduce of NCCL.

    python two_gpus.py --cudnn lib/libcudnn.so.9 [--shape N C H W] [--repeats 200]

Each process has a GPU, half of the batch, and its buffer of peers, which the other opens by an IPC handle. Needs torch
(with CUDA and NCCL), numpy, nvidia-cudnn-frontend, and two GPUs that reach each other's memory. Prints a line of JSON.
"""

import argparse
import ctypes
import json
import os
import sys

EPSILON, MOMENTUM = 1e-3, 0.1


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cudnn", required=True)
    parser.add_argument("--shape", type=int, nargs=4, default=[32, 256, 56, 56], help="of one GPU's part")
    parser.add_argument("--repeats", type=int, default=200)
    return parser.parse_args()


def whole_batch(x, dy, scale, bias):
    """y, dx, dscale and dbias of the whole batch in float64."""
    import numpy as np

    x, dy = (np.concatenate(parts).astype(np.float64) for parts in (x, dy))
    scale, bias = (v.astype(np.float64).reshape(1, -1, 1, 1) for v in (scale, bias))
    axes, count = (0, 2, 3), x.size // x.shape[1]
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + EPSILON)
    normal = (x - mean) * inverse
    dbias, dscale = dy.sum(axes, keepdims=True), (dy * normal).sum(axes, keepdims=True)
    dx = scale * inverse * (dy - dbias / count - normal * dscale / count)
    return {"y": normal * scale + bias, "mean": mean, "inverse": inverse, "dx": dx, "dscale": dscale, "dbias": dbias}


class Norms:
    """The two graphs of one process, and the memory that they run on."""

    def __init__(self, cudnn, torch, shape, peers):
        self.cudnn, self.torch, self.peers = cudnn, torch, peers
        self.handle = cudnn.create_handle()
        self.shape, self.stats = list(shape), [1, shape[1], 1, 1]
        self.workspace = {}

    def _like(self, graph, name, dims, data_type):
        n, c, h, w = dims
        return graph.tensor(name=name, dim=dims, stride=[c * h * w, 1, c * w, c], data_type=data_type)

    def _graph(self):
        t = self.cudnn.data_type
        graph = self.cudnn.pygraph(io_data_type=t.HALF, intermediate_data_type=t.FLOAT, compute_data_type=t.FLOAT,
                                   handle=self.handle)
        peers = [graph.tensor(name=f"peer{r}", dim=list(p.shape), stride=list(p.stride()), data_type=t.FLOAT)
                 for r, p in enumerate(self.peers)]
        return graph, peers, lambda name: self._like(graph, name, self.stats, t.FLOAT)

    def _built(self, graph):
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A])
        graph.build_plans()
        return self.torch.empty(max(graph.get_workspace_size(), 1), dtype=self.torch.uint8, device="cuda")

    def forward(self, memory):
        graph, peers, stat = self._graph()
        x = self._like(graph, "x", self.shape, self.cudnn.data_type.HALF)
        scale, bias, mean, variance = (stat(n) for n in ("scale", "bias", "running_mean", "running_var"))
        scalars = [graph.tensor(name=n, dim=[1, 1, 1, 1], stride=[1, 1, 1, 1], is_pass_by_value=True,
                                data_type=self.cudnn.data_type.FLOAT) for n in ("epsilon", "momentum")]
        results = graph.batchnorm(x, scale, bias, mean, variance, *scalars, peer_stats=peers)
        for result, data_type in zip(results, ["HALF"] + 4 * ["FLOAT"]):
            result.set_output(True).set_data_type(getattr(self.cudnn.data_type, data_type))
        workspace = self._built(graph)
        pack = {x: memory["x"], scale: memory["scale"], bias: memory["bias"], mean: memory["running_mean"],
                variance: memory["running_var"], scalars[0]: memory["epsilon"], scalars[1]: memory["momentum"]}
        pack |= dict(zip(results, (memory[n] for n in ("y", "mean", "inverse", "next_mean", "next_var"))))
        pack |= dict(zip(peers, self.peers))
        return lambda: graph.execute(pack, workspace, handle=self.handle)

    def backward(self, memory):
        graph, peers, stat = self._graph()
        half = self.cudnn.data_type.HALF
        x, dy = (self._like(graph, n, self.shape, half) for n in ("x", "dy"))
        scale, mean, inverse = (stat(n) for n in ("scale", "mean", "inverse"))
        results = graph.batchnorm_backward(dy, x, scale, mean, inverse, peer_stats=peers)
        for result, data_type in zip(results, ["HALF", "FLOAT", "FLOAT"]):
            result.set_output(True).set_data_type(getattr(self.cudnn.data_type, data_type))
        workspace = self._built(graph)
        pack = {x: memory["x"], dy: memory["dy"], scale: memory["scale"], mean: memory["mean"],
                inverse: memory["inverse"]}
        pack |= dict(zip(results, (memory[n] for n in ("dx", "dscale", "dbias"))))
        pack |= dict(zip(peers, self.peers))
        return lambda: graph.execute(pack, workspace, handle=self.handle)


def median_seconds(torch, distributed, run, repeats):
    """Of `repeats` runs, each begun by both processes together; by events."""
    times = []
    for _ in range(repeats):
        distributed.barrier()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def frontend(path):
    import cudnn

    library = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    cudnn._pybind_module._set_dlhandle_cudnn(library._handle)
    return cudnn


def process(rank, options, queues, results):
    import numpy as np
    import torch
    import torch.distributed as distributed

    torch.cuda.set_device(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    distributed.init_process_group("nccl", rank=rank, world_size=2)
    cudnn = frontend(options.cudnn)
    n, c, h, w = options.shape
    random = np.random.default_rng(7)
    x, dy = ([random.standard_normal(options.shape, np.float32).astype(np.float16) for _ in range(2)]
             for _ in range(2))
    x[1] = (x[1] * 2 + 3).astype(np.float16)
    scale, bias = (random.standard_normal(c).astype(np.float32) for _ in range(2))

    own = torch.zeros((2, 4 * c, 1, 1), dtype=torch.float32, device="cuda")
    queues[1 - rank].put(own)  # an IPC handle
    other = queues[rank].get()
    other[:1].to(f"cuda:{rank}")  # lets this GPU reach the other one's memory
    peers = [own, other] if rank == 0 else [other, own]

    def of_channels(values):
        return torch.from_numpy(values.reshape(1, c, 1, 1).copy()).cuda()

    def image(values):
        return torch.from_numpy(values).cuda().to(memory_format=torch.channels_last)

    memory = {"x": image(x[rank]), "dy": image(dy[rank]), "scale": of_channels(scale), "bias": of_channels(bias),
              "epsilon": torch.full((1, 1, 1, 1), EPSILON), "momentum": torch.full((1, 1, 1, 1), MOMENTUM)}
    for name in ("y", "dx"):
        memory[name] = torch.empty_like(memory["x"])
    for name in ("running_mean", "running_var", "mean", "inverse", "next_mean", "next_var", "dscale", "dbias"):
        memory[name] = of_channels(np.ones(c, np.float32))
    norms = Norms(cudnn, torch, options.shape, peers)
    cudnn.set_stream(norms.handle, torch.cuda.current_stream().cuda_stream)
    forward, backward = norms.forward(memory), norms.backward(memory)
    distributed.barrier()
    forward()
    backward()
    torch.cuda.synchronize()

    want = whole_batch(x, dy, scale, bias)
    errors = {}
    for name, value in want.items():
        if name in ("y", "dx"):
            value = value[rank * n:(rank + 1) * n]
        got = memory[name].cpu().numpy().astype(np.float64)
        errors[name] = float(np.abs(got - value).max() / np.abs(value).max())

    layer = torch.nn.SyncBatchNorm(c, eps=EPSILON, momentum=MOMENTUM).cuda()
    image_in = memory["x"].clone().requires_grad_()
    local = [torch.empty(2 * c + 1, device="cuda"), torch.nn.BatchNorm2d(c, eps=EPSILON).cuda()]

    def reduce_and_local():  # what a client does without peers: a local norm, and the sums of all
        local[1](memory["x"])
        distributed.all_reduce(local[0])

    seconds = {name: median_seconds(torch, distributed, run, options.repeats)
               for name, run in {"forward": forward, "backward": backward, "nccl_and_local": reduce_and_local,
                                 "torch_sync_forward": lambda: layer(image_in)}.items()}
    results.put({"rank": rank, "errors": errors, "seconds": seconds, "device": torch.cuda.get_device_name()})
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    options = arguments()
    try:
        import torch
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        sys.exit(f"two_gpus.py needs PyTorch: {error}")
    if torch.cuda.device_count() < 2:
        print(json.dumps({"lacks": f"{torch.cuda.device_count()} GPUs are here, two are needed"}))
        return
    context = multiprocessing.get_context("spawn")
    queues, results = [context.Queue(), context.Queue()], context.Queue()
    processes = [context.Process(target=process, args=(rank, options, queues, results)) for rank in range(2)]
    for one in processes:
        one.start()
    answers = [results.get(timeout=600) for _ in processes]
    for one in processes:
        one.join()
    worst = max(error for answer in answers for error in answer["errors"].values())
    first = min(answers, key=lambda answer: answer["rank"])["seconds"]
    print(json.dumps({"shape": options.shape, "ranks": sorted(answers, key=lambda answer: answer["rank"]),
                      "worst": worst, "ratio": first["nccl_and_local"] / first["forward"]}))
    if worst > 4e-3:  # f16 results beside their largest
        sys.exit("a result is not that of the whole batch")


if __name__ == "__main__":
    main()
