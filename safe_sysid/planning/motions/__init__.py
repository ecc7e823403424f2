"""Fast motions from rest to rest with a known payload."""
