"""The work cell of an experiment, simulated: its file, its dumbbells, grasp, contacts and stacks."""
