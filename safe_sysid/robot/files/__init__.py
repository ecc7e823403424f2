"""Readers of URDF, YAML and meshes, strict and limited in size."""
