"""What muster_launch does, with Python's torch: ranks that make a Gloo group and reduce one number."""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def first_all_reduce():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    dist.destroy_process_group()


def rank_main(rank, size, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    first_all_reduce()
    sys.stdout.flush()
    os._exit(0)


def launch(method, size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context(method)
    ranks = [context.Process(target=rank_main, args=(rank, size, port)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0


def main():
    how = sys.argv[1]
    if how == "rank":  # torchrun has started it
        return first_all_reduce()
    size = int(sys.argv[2])
    if how == "fork":
        return launch("fork", size)
    mp.set_forkserver_preload(["torch", "torch.distributed", "__main__"])
    for _ in sys.stdin:
        start = time.monotonic()
        launch("forkserver", size)
        print((time.monotonic() - start) * 1e3, flush=True)


if __name__ == "__main__":
    main()
