"""What a trial is made of: its settings, a made-up arm and payload, true motion and torques, measurements."""
