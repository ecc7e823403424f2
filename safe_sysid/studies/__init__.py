"""Studies: campaigns, the papers' experiments and forgeries. No arm needs them."""
