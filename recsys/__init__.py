"""CTR model training with ERASE, the early-backward schedule.

Importing this package loads nothing heavy; it only checks that torch, torchrec and fbgemm-gpu fit together.
"""

from recsys.versions import require_supported

__version__ = "0.1.0"

require_supported()
