"""Identification of a log's payload: the methods, sensors that the log itself tells about, files and results."""
