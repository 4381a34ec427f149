"""Which parts to detach for speed: what each part costs, what a schedule makes of it, what the real step says."""
