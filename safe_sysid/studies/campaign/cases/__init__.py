"""Parts of a trial: settings, a made-up arm and payload, true motion and torques, measurements."""
