"""Hybrid inverse dynamics [Hybrid]: a rigid arm, friction, and a network with memory for what both leave.

Modules with ``torch`` in their imports train; no control process imports them. :mod:`.stepping` runs what was learned.
"""
