"""Physically consistent point estimates inside the proved bounds. None of them carries a guarantee."""
