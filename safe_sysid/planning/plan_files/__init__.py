"""Plans as files that somebody else can certify again."""
