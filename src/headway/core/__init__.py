"""The brain: pure decisions. No clock, no chance but a seeded generator, no I/O, no logging, no asyncio.

What comes in are events, what goes out are commands (`events`, `commands`); both are plain values, so that a
gateway, a simulator, or a replayed journal can drive the same object. Floors inside, top first:

    brain > admission | scheduler > fleet > ledger > memory > length | prefix | speed | health | retry
          > plugin > events | commands > view > request | replica | outcome > ids

Words and suffixes: docs/glossary.md. All times are monotonic seconds given from outside.
"""
