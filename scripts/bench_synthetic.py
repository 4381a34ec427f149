"""Rows per second of the synthetic data, on one core: ``python scripts/bench_synthetic.py``.

Shows the bare generator and whole batches (with the KeyedJaggedTensor), one-hot and multi-hot, for the
default vocabularies and for Criteo Kaggle's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from recsys.data.synthetic import SyntheticData, SyntheticSource
from recsys.errors import UserError

_DEFAULT = SyntheticData(
    train_rows=240_000,
    valid_rows=20_000,
    test_rows=40_000,
    max_cardinality=2_000,
    zipf_exponent=1.0,
    correlation=0.5,
    click_rate=0.25,
    first_order=0.9,
    pair=1.4,
    triple=1.1,
    dense=0.9,
    head=30,
    multi_hot=1,
    drift=0.0,
    seed=2024,
)
