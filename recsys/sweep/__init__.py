"""Many runs from one command: what the jobs are, how each is run once, and what they say together."""
