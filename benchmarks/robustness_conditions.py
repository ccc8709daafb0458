"""What is varied, one thing at a time, to see what forecasts are worth then. Values only; `robustness` runs them."""

import msgspec

from headway.sim.scenario import PoolSpec, Truth

POOL = PoolSpec(4, "llama-3.1-8b", "a100-80gb", kv_tokens=60_000)
BENT = Truth(perturb=0.2)
LOAD = 0.8
"""Of what the fleet works off."""


class Condition(msgspec.Struct, frozen=True):
    """What is different from the first condition. From the middle of the run on, outputs are `drift` times as long and
    prompts have `then_bytes` per token (0: as before); `foreign` is the share of the load that goes to engines without
    our knowledge."""

    name: str
    about: str
    mix: str = "chat"
    pool: PoolSpec = POOL
    truth: Truth = BENT
    drift: float = 1.0
    then_bytes: float = 0.0
    foreign: float = 0.0
    load: float = LOAD


def _pool(**changes: object) -> PoolSpec:
    return msgspec.structs.replace(POOL, **changes)


def _truth(**changes: object) -> Truth:
    return msgspec.structs.replace(BENT, **changes)


CONDITIONS = (
    Condition("chat", "the yardstick: chat of several turns, reports every 0.5 s"),
    Condition("batch-8", "at most 8 sequences at once", pool=_pool(max_num_seqs=8)),
    Condition("batch-32", "at most 32", pool=_pool(max_num_seqs=32)),
    Condition(
        "batch-1024", "at most 1,024, in a pool five times as large", pool=_pool(max_num_seqs=1024, kv_tokens=300_000)
    ),
    Condition("chunk-512", "prefill in pieces of 512 tokens", pool=_pool(max_num_batched_tokens=512)),
    Condition("fp8", "weights in fp8", pool=_pool(dtype="fp8")),
    Condition("fp8-kv", "weights and KV cache in fp8: twice the tokens", pool=_pool(dtype="fp8", kv_tokens=120_000)),
    Condition("no-cache", "no prefix caching", pool=_pool(enable_prefix_caching=False)),
    Condition("code", "prefill-heavy: prompts of 1,469 tokens, outputs of 13 (medians)", mix="code"),
    Condition("documents", "prefill-heavy: 2,730 and 167", mix="documents"),
    Condition("reasoning", "decode-heavy: 208 and 792, up to 32,768", mix="reasoning", pool=_pool(kv_tokens=200_000)),
    Condition("bursts", "ten seconds of every minute bring five times the mean", mix="bursts", load=0.6),
    Condition("longer", "outputs three times as long, all at once", drift=3.0, load=0.4),
    Condition("shorter", "outputs a third as long, all at once", drift=1 / 3),
    Condition("code-text", "from 4.2 bytes per token to 3.0, as of source code", then_bytes=3.0),
    Condition("chinese", "from 4.2 bytes per token to 8.0, as of escaped Chinese", then_bytes=8.0),
    Condition("mixed-text", "prompts that vary by a factor of 1.6 (1 sigma)", truth=_truth(byte_noise=0.47)),
    Condition("foreign-20", "a fifth of the load comes past the gateway", foreign=0.2),
    Condition("foreign-50", "half of it", foreign=0.5),
    Condition("reports-0.1", "reports every 0.1 s", truth=_truth(scrape_interval_s=0.1)),
    Condition("reports-2", "every 2 s", truth=_truth(scrape_interval_s=2.0)),
    Condition("reports-10", "every 10 s, all the time too old to be used", truth=_truth(scrape_interval_s=10.0)),
    Condition("lag-0.5", "what reports say is half a second old", truth=_truth(gauge_lag_s=0.5)),
    Condition(
        "foreign-2", "a fifth past the gateway, and reports every 2 s", foreign=0.2, truth=_truth(scrape_interval_s=2.0)
    ),
    Condition("exact", "engines exactly as the brain is told", truth=Truth(step_jitter=0.0)),
)
