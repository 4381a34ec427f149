"""How many multiprocessors cuBLAS plans a matrix product for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def gemm_sms(number: int | None) -> Iterator[None]:
    """Let cuBLAS choose kernels for ``number`` multiprocessors; None, or all there are, leaves it the whole device.

    A product planned for the whole device takes every multiprocessor's shared memory, and products of
    other lanes wait for it. Planned for a third of the device each is a little slower and three run
    side by side. Holds for products issued by the calling thread.

    Raises:
        OSError: cuBLAS is not loaded.
        RuntimeError: cuBLAS refuses.
    """
    if number is None or number >= _multiprocessors():
        yield
        return
    _set(number)
    try:
        yield
    finally:
        _set(0)


def _multiprocessors() -> int:
    count: int = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return count


def _set(number: int) -> None:
    assert torch.version.cuda is not None
    cublas = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}")
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    error = cublas.cublasSetSmCountTarget(handle, ctypes.c_int(number))
    if error:
        raise RuntimeError(f"cublasSetSmCountTarget({number}) answers with error {error}")
    # torch hands products with a bias to cuBLASLt, which has a setting of its own.
    torch._C._set_sm_carveout_experimental(_multiprocessors() - number if number else None)
