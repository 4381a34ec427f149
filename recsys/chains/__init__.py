"""Models whose parts form a chain: a deep MLP and a small GPT, trained by the same engine as the recommender."""
