"""Code that all nodes share: life cycle, messages, parameters, the 1 kHz loop, limits on inputs."""
