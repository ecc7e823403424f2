"""Files of several formats in, one kind of log out."""
