"""What all nodes share: life cycle, messages, parameters, the 1 kHz loop, limits of what comes in."""
