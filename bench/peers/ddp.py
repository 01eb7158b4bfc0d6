"""The step of muster_ddp with Python's DistributedDataParallel."""

import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WARM_UP, STEPS = 5, 20


def make_model(name):
    width, layers = (1024, 8) if name == "mlp" else (32, 100)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts), width


def train(rank, name, port, medians):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model, width = make_model(name)
    model = DistributedDataParallel(model)
    sgd = torch.optim.SGD(model.parameters(), 1e-3)
    data = torch.randn(32, width)
    times = []
    for _ in range(WARM_UP + STEPS):
        start = time.monotonic()
        sgd.zero_grad()
        model(data).pow(2).mean().backward()
        sgd.step()
        times.append((time.monotonic() - start) * 1e3)
    medians[rank] = statistics.median(times[WARM_UP:])
    dist.destroy_process_group()


if __name__ == "__main__":
    for _ in sys.stdin:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        medians = mp.get_context("fork").Array("d", 2)
        mp.start_processes(train, (sys.argv[1], port, medians), nprocs=2, start_method="fork")
        print(max(medians), flush=True)
