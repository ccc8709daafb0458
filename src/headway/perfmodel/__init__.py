"""What an engine would do: hardware, device memory, step times, continuous batching, and the tokens it would say.

Pure: no clock (virtual time is handed in), no chance (tokens are a function of the tokens before them), no I/O. The
emulator puts it behind HTTP, the simulator steps it on a heap, `headway memory` prints its sums. core never imports it:
what the brain knows of a roofline reaches it as numbers in a ReplicaSpec.
"""
