"""One file per engine dialect: where its load report is, how to read it, what it serves. `base` holds the contract.

Pure: bytes come in, values go out. A new engine is one file that ends in `PLUGIN` and a recorded answer to test it on.
`gauges` and `cards` are the reading aids dialects share; `dcgm` reads device memory, which no engine reports.
Dialects are strangers to each other.
"""
