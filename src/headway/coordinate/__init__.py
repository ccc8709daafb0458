"""coordinate."""
