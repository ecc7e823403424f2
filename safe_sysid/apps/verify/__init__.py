"""Use cases of ``safe-sysid verify``."""
