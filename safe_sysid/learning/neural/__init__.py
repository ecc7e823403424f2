"""Hybrid inverse dynamics [Hybrid]: a rigid arm, friction, and a network with memory for what both leave.

:mod:`.training` learns models with torch; :mod:`.stepping` runs them without.
"""
