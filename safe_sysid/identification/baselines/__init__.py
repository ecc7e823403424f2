"""PSO's sensitivity bounds and classical least squares, to compare with: docs/understand/identification.md."""
