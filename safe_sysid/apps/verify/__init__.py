"""What ``safe-sysid verify`` does."""
