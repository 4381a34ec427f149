from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: the tests already fill the cores

import pytest
from hypothesis import settings

settings.register_profile("recsys", deadline=None)
settings.load_profile("recsys")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items:
        import torch

        if not torch.cuda.is_available():
            _skip(gpu_items, "needs a CUDA device")
    if not os.environ.get("RECSYS_CRITEO_SAMPLE"):
        criteo_items = [item for item in items if item.get_closest_marker("criteo")]
        _skip(criteo_items, "needs RECSYS_CRITEO_SAMPLE, the path of a file in Criteo Kaggle's format")


def _skip(items: list[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def criteo_sample() -> Path:
    """Real Criteo rows; mark the test ``criteo``."""
    return _real_file("RECSYS_CRITEO_SAMPLE")


@pytest.fixture(scope="session")
def movielens() -> Path:
    """MovieLens-1M as one parquet file."""
    return _real_file("RECSYS_MOVIELENS")


def _real_file(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"needs {variable}, the path of a file with real rows")
    assert Path(value).is_file(), f"{variable}={value}: no such file"
    return Path(value)
