"""The experiments of [PSDM]: pseudo-symbolic models of arms, counted, timed and reduced."""
