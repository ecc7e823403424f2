"""Attack on reachable sets and certificates: thousands of enclosures, each against the worst found inside."""
