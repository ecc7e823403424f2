"""What a log leaves open of an arm's parameters, and motions that would tell it."""
