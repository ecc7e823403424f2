"""Online identification: session, journal, certificates, replay."""
