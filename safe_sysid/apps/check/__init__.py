"""Use cases of ``safe-sysid config check``."""
