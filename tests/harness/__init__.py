"""Byte-level building blocks for the tests of the data plane: every byte, pause, FIN and RST is the test's.

`http1` strict messages · `engine` a scripted engine · `scripts` what it does · `client` a raw client · `accounts` the
books after a test · `chaos` phases of a request times ways of leaving.
"""
