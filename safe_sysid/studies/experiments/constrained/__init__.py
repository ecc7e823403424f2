"""The experiments of [ConstrainedSysID]: identified against the manufacturer's parameters, on held-out motion."""
