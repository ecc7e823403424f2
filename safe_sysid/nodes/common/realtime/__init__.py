"""The 1 kHz loop: its thread, scheduling in real time, histograms of its times and a recorder of its rows."""
