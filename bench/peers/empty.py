"""Ranks that do nothing, from Python's fork server with torch preloaded."""

import multiprocessing as mp
import sys
import time


def nothing():
    pass


if __name__ == "__main__":
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    for _ in sys.stdin:
        start = time.monotonic()
        ranks = [context.Process(target=nothing) for _ in range(int(sys.argv[1]))]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        print((time.monotonic() - start) * 1e3, flush=True)
