"""``safe-sysid experiment``: one module for each paper, and what they share."""
