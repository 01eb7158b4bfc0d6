"""Ranks of which rank 0 fails the first time, once all are there. Both times are told. For torchrun:
restart.py FOLDER, in which ranks meet."""

import os
import sys
import time

folder, rank, attempt = sys.argv[1], int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
if attempt == "0":
    open(os.path.join(folder, str(rank)), "w").close()
    if rank == 0:
        while len(os.listdir(folder)) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.001)
        os.write(1, f"failed {time.monotonic_ns()}\n".encode())
        os._exit(1)
    time.sleep(60)
os.write(1, f"runs {time.monotonic_ns()}\n".encode())
