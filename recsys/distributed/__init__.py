"""Training on several processes: ranks, shares of batches, sharded tables, reductions, exact evaluation."""
