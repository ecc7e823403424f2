"""Files of certificates: how they are written, and how they are read without trust."""
