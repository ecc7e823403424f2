"""(trajectory, box of parameters, tracking bound) -> rigorous enclosures of motion, torque and distance."""
