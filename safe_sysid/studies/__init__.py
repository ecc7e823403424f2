"""What attacks and compares: campaigns, the papers' experiments, forgeries. Nothing that an arm needs."""
