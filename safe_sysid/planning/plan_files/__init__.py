"""Plan files: certified plans that anybody can certify again."""
