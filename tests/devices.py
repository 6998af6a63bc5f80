"""What would make an accelerator wait: numbers read from it, tensors made elsewhere.

There is no accelerator here. Numbers that are read on the CPU are counted as they would be on one;
states on the ``meta`` device, which has no numbers, show where tensors are made.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


class Reads(TorchDispatchMode):
    """Counts numbers that are read from tensors."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class Copies(TorchFunctionMode):
    """Collects tensors that are made from Python numbers: copies for which the host waits."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor) and out.is_meta:
            self.shapes.append(tuple(out.shape))
        return out


class Elsewhere(TorchDispatchMode):
    """Counts reads from ``meta`` tensors, which are all 0.01, and tensors made on the CPU."""

    def __init__(self):
        super().__init__()
        self.reads = 0
        self.copies = Copies()
        self.made = []

    def __enter__(self):
        self.copies.__enter__()
        return super().__enter__()

    def __exit__(self, *failure):
        super().__exit__(*failure)
        self.copies.__exit__(*failure)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and args[0].is_meta:
            self.reads += 1
            return 0.01
        if func is aten._to_copy.default and args[0].is_meta and kwargs.get("device").type == "cpu":
            self.reads += 1
            return torch.full(args[0].shape, 0.01, dtype=args[0].dtype)
        out = func(*args, **kwargs)
        self.made += [(func, leaf.dtype) for leaf in tree_leaves(out) if _on_host(leaf)]
        return out


def _on_host(leaf):
    """States of random generators, which are bytes, are on the host for every device."""
    host = isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"
    return host and leaf.is_floating_point()
