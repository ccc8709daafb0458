"""Random mutation over the wire codecs. `python -m fuzz.run --seconds 60 --seed 1`."""
