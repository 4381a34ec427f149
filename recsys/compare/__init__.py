"""Compare experiments over paired seeds and folds: plan, run, infer, report."""
