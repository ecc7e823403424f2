"""The bodies of the arm, as convex hulls and capsules that contain them."""
