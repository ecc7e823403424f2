"""Log to momentum equations to proved bounds and a nominal estimate of what the hand holds."""
