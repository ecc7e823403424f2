"""Control: gain synthesis with its proved tracking bound, the robust law, and the state machine around it."""
