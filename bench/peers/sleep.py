"""Ranks that tell their pids and sleep: for torchrun ("rank"), or started by mp.spawn ("spawn N")."""

import os
import sys
import time

import torch.multiprocessing as mp


def sleep(_rank):
    os.write(1, f"{os.getpid()}\n".encode())  # one piece, whoever else writes
    time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        sleep(int(os.environ["RANK"]))
    try:
        mp.spawn(sleep, nprocs=int(sys.argv[2]))
    except Exception:
        print(time.monotonic_ns(), flush=True)
