"""How an arm's nodes are started, led from state to state, and ended: by the demo and by launch files alike."""
