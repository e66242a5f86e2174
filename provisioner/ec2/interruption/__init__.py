"""What AWS announces: interruption queue, messages, health events, zonal shift."""
