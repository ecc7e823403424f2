"""Logs of an arm: prepared for identification, and checked."""
