"""What the identifier node does with samples: session, journal, certificates, replay."""
