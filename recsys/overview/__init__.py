"""One page over any number of runs: what ``make report`` writes. The figures come from ``report`` and ``compare``."""
