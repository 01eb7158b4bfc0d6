"""256 MiB from a process to its parent, in GB/s: a pickled numpy array, or a shared-memory tensor."""

import sys
import time

import numpy
import torch
import torch.multiprocessing as mp

SIZE = 256 << 20


def send_array(queue, done):
    array = numpy.ones(SIZE // 8)
    array[0] = time.monotonic()
    queue.put(array)
    done.wait()


def send_tensor(queue, done):
    tensor = torch.ones(SIZE // 8, dtype=torch.double)
    tensor[0] = time.monotonic()
    queue.put(tensor)
    done.wait()


if __name__ == "__main__":
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "numpy", "__main__"])
    for _ in sys.stdin:
        queue, done = context.Queue(), context.Event()
        sender = context.Process(
            target=send_tensor if sys.argv[1] == "tensor" else send_array, args=(queue, done))
        sender.start()
        received = queue.get()
        start = float(received[0])
        received[:: 4096 // 8].sum()  # every page
        print(SIZE / (time.monotonic() - start) / 1e9, flush=True)
        done.set()
        sender.join()
