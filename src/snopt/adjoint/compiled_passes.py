"""Changes of ATen graphs before code is generated for them, as passes of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Graph

from snopt.adjoint.compiled_tanh import replace_tanh

#: Small fields are limited by the overhead of a call: kernels are called from C++, and loops over
#: fewer numbers than this use one thread.
COMPILER: dict[str, Any] = {"cpp_wrapper": True, "cpp.min_chunk_size": 16384}


def split_bias(graph: Graph) -> None:
    """Replace ``bias + a @ b`` as one operation by a product and a sum, on a CPU.

    The product of a small layer with a bias first copies the bias into the result. A separate sum
    is part of the elementwise kernel that follows, such as that of tanh.

    Example:
        >>> graph = Graph()
        >>> bias, a, b = map(graph.placeholder, "xab")
        >>> node = graph.call_function(torch.ops.aten.addmm.default, (bias, a, b))
        >>> node.meta["val"] = torch.zeros(2, 2)
        >>> split_bias(graph)
        >>> [str(node.target) for node in graph.nodes][-2:]
        ['aten.mm.default', 'aten.add.Tensor']
    """
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
        value = node.meta["val"]
        # In lower precision, the product would be rounded once more before the sum.
        exact = value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64)
        if not exact or node.kwargs:
            continue
        bias, a, b = node.args
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, (a, b))
            total = graph.call_function(aten.add.Tensor, (product, bias))
        product.meta.update(node.meta)
        total.meta.update(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)


@cache
def compiler_pass(change: Callable[[Graph], None]) -> Any:
    """Return a change of a graph as a compiler pass, or None for PyTorch before 2.6.

    There is one object for all blocks: compiled code is shared between equal options only, and the
    compiler gives up after eight versions. The class is defined here because importing the compiler
    takes long.
    """
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
    except ImportError:
        return None

    class Pass(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            change(graph)

        def uuid(self) -> Any:
            """Compiled graphs are cached under a hash of the function's file."""
            return get_hash_for_files((change.__code__.co_filename,), change.__name__)

    return Pass()


def compiler_options() -> dict[str, Any]:
    """Return the options with which steps and pull-backs are compiled."""
    return {
        **COMPILER,
        "post_grad_custom_pre_pass": compiler_pass(replace_tanh),
        # After the compiler's own pass, which merges products and sums.
        "post_grad_custom_post_pass": compiler_pass(split_bias),
    }
