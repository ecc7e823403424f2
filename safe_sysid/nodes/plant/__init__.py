"""The plant node: the simulated arm behind the topics of a real one."""
