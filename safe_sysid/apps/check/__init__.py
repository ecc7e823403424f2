"""What ``safe-sysid config check`` does."""
