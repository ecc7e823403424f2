"""Physically consistent point estimates inside the proved bounds. They carry no guarantee."""
