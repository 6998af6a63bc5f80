"""Two processes of torch.distributed for tests, over the loopback interface."""

import socket
from datetime import timedelta

import torch
from torch import distributed, multiprocessing


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def join(rank, port, seconds=60):
    """Become one of two processes that wait for each other at most so many seconds."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
        timeout=timedelta(seconds=seconds),
    )  # fmt: skip


def both(work, *args):
    """Return what ``work(rank, *args)`` returns in each of two processes."""
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.spawn(_work, (free_port(), work, args, results), nprocs=2)
        return results[0], results[1]


def _work(rank, port, work, args, results):
    join(rank, port)
    try:
        results[rank] = work(rank, *args)
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
