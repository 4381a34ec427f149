"""What a captured CUDA graph is made of, asked of the CUDA runtime that torch has loaded."""

from __future__ import annotations

import ctypes
from collections import Counter

import torch

# cudaGraphNodeType of the CUDA runtime API.
_NODE_TYPES = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "graph", 5: "empty", 6: "wait", 7: "record"}


def count_nodes(graph: torch.cuda.CUDAGraph) -> Counter[str]:
    """Nodes of a graph captured with ``keep_graph=True``, by type.

    Raises:
        OSError: the CUDA runtime library is not loaded.
        RuntimeError: the runtime refuses the question.
    """
    assert torch.version.cuda is not None
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    number = ctypes.c_size_t()
    _check(runtime.cudaGraphGetNodes(handle, None, ctypes.byref(number)))
    nodes = (ctypes.c_void_p * number.value)()
    _check(runtime.cudaGraphGetNodes(handle, nodes, ctypes.byref(number)))
    counts: Counter[str] = Counter()
    for node in nodes:
        kind = ctypes.c_int()
        _check(runtime.cudaGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        counts[_NODE_TYPES.get(kind.value, "other")] += 1
    return counts


def _check(error: int) -> None:
    if error:
        raise RuntimeError(f"the CUDA runtime answers with error {error}")
