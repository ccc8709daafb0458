"""Models by their Hugging Face ids: the numbers of their published config.json."""

from headway.perfmodel.architectures import Architecture


def _row(name: str, sizes: str, *also: str, tied: bool = False, **more: int) -> Architecture:
    """`sizes`: layers hidden intermediate heads kv_heads head_dim vocab max_position."""
    layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, max_position = map(int, sizes.split())
    every = more.pop("global_every", 0)
    mixers = "".join("w" if (n + 1) % every else "f" for n in range(layers)) if every else ""
    return Architecture(
        name,
        layers,
        hidden,
        intermediate,
        heads,
        kv_heads,
        head_dim,
        vocab,
        max_position,
        tied,
        mixers,
        window=more.get("window", 0),
        vision_parameters=more.get("extra_parameters", 0),
        aliases=also,
    )


ARCHITECTURES: tuple[Architecture, ...] = (
    _row(
        "meta-llama/Llama-3.1-8B-Instruct",
        "32 4096 14336 32 8 128 128256 131072",
        "llama-3.1-8b",
        "meta-llama/Llama-3.1-8B",
        "nvidia/Llama-3.1-8B-Instruct-FP8",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    ),
    _row("meta-llama/Meta-Llama-3-8B", "32 4096 14336 32 8 128 128256 8192", "llama-3-8b"),
    _row(
        "meta-llama/Llama-3.1-70B-Instruct",
        "80 8192 28672 64 8 128 128256 131072",
        "llama-3.1-70b",
        "meta-llama/Llama-3.1-70B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    ),
    _row(
        "meta-llama/Llama-3.3-70B-Instruct",
        "80 8192 28672 64 8 128 128256 131072",
        "llama-3.3-70b",
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
    ),
    _row(
        "meta-llama/Llama-3.2-1B-Instruct",
        "16 2048 8192 32 8 64 128256 131072",
        "llama-3.2-1b",
        "meta-llama/Llama-3.2-1B",
        tied=True,
    ),
    _row(
        "meta-llama/Llama-3.2-3B-Instruct",
        "28 3072 8192 24 8 128 128256 131072",
        "llama-3.2-3b",
        "meta-llama/Llama-3.2-3B",
        tied=True,
    ),
    _row(
        "meta-llama/Llama-2-7b-hf", "32 4096 11008 32 32 128 32000 4096", "llama-2-7b", "meta-llama/Llama-2-7b-chat-hf"
    ),
    _row(
        "meta-llama/Llama-2-13b-hf",
        "40 5120 13824 40 40 128 32000 4096",
        "llama-2-13b",
        "meta-llama/Llama-2-13b-chat-hf",
    ),
    _row(
        "meta-llama/Llama-2-70b-hf",
        "80 8192 28672 64 8 128 32000 4096",
        "llama-2-70b",
        "meta-llama/Llama-2-70b-chat-hf",
    ),
    _row("codellama/CodeLlama-7b-hf", "32 4096 11008 32 32 128 32016 16384", "codellama-7b"),
    _row("codellama/CodeLlama-34b-Instruct-hf", "48 8192 22016 64 8 128 32000 16384", "codellama-34b"),
    _row("Qwen/Qwen2.5-0.5B-Instruct", "24 896 4864 14 2 64 151936 32768", "qwen2.5-0.5b", tied=True),
    _row(
        "Qwen/Qwen2.5-1.5B-Instruct",
        "28 1536 8960 12 2 128 151936 32768",
        "qwen2.5-1.5b",
        "Qwen/Qwen2.5-Math-1.5B",
        tied=True,
    ),
    _row("Qwen/Qwen2.5-3B-Instruct", "36 2048 11008 16 2 128 151936 32768", "qwen2.5-3b", tied=True),
    _row("Qwen/Qwen2.5-7B-Instruct", "28 3584 18944 28 4 128 152064 32768", "qwen2.5-7b"),
    _row("Qwen/Qwen2.5-14B-Instruct", "48 5120 13824 40 8 128 152064 32768", "qwen2.5-14b"),
    _row(
        "Qwen/Qwen2.5-32B-Instruct",
        "64 5120 27648 40 8 128 152064 32768",
        "qwen2.5-32b",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    ),
    _row("Qwen/Qwen2.5-72B-Instruct", "80 8192 29568 64 8 128 152064 32768", "qwen2.5-72b", "moonshotai/Kimi-Dev-72B"),
    _row("Qwen/Qwen3-0.6B", "28 1024 3072 16 8 128 151936 40960", "qwen3-0.6b", tied=True),
    _row("Qwen/Qwen3-1.7B", "28 2048 6144 16 8 128 151936 40960", "qwen3-1.7b", tied=True),
    _row("Qwen/Qwen3-4B", "36 2560 9728 32 8 128 151936 40960", "qwen3-4b", tied=True),
    _row("Qwen/Qwen3-8B", "36 4096 12288 32 8 128 151936 40960", "qwen3-8b"),
    _row("Qwen/Qwen3-14B", "40 5120 17408 40 8 128 151936 40960", "qwen3-14b"),
    _row("Qwen/Qwen3-32B", "64 5120 25600 64 8 128 151936 40960", "qwen3-32b"),
    _row("mistralai/Mistral-7B-Instruct-v0.3", "32 4096 14336 32 8 128 32768 32768", "mistral-7b"),
    _row("mistralai/Mistral-Nemo-Instruct-2407", "40 5120 14336 32 8 128 131072 131072", "mistral-nemo-12b"),
    _row("mistralai/Mistral-Small-24B-Instruct-2501", "40 5120 32768 32 8 128 131072 32768", "mistral-small-24b"),
    _row("google/gemma-7b", "28 3072 24576 16 16 256 256000 8192", "gemma-7b", tied=True),
    _row(
        "google/gemma-2-2b-it", "26 2304 9216 8 4 256 256000 8192", "gemma-2-2b", tied=True, window=4096, global_every=2
    ),
    _row(
        "google/gemma-2-9b-it",
        "42 3584 14336 16 8 256 256000 8192",
        "gemma-2-9b",
        tied=True,
        window=4096,
        global_every=2,
    ),
    _row(
        "google/gemma-2-27b-it",
        "46 4608 36864 32 16 128 256000 8192",
        "gemma-2-27b",
        tied=True,
        window=4096,
        global_every=2,
    ),
    _row(
        "google/gemma-3-1b-it", "26 1152 6912 4 1 256 262144 32768", "gemma-3-1b", tied=True, window=512, global_every=6
    ),
    _row(
        "google/gemma-3-4b-it",
        "34 2560 10240 8 4 256 262208 131072",
        "gemma-3-4b",
        tied=True,
        window=1024,
        global_every=6,
        extra_parameters=420_000_000,
    ),
    _row(
        "google/gemma-3-12b-it",
        "48 3840 15360 16 8 256 262208 131072",
        "gemma-3-12b",
        tied=True,
        window=1024,
        global_every=6,
        extra_parameters=420_000_000,
    ),
    _row(
        "google/gemma-3-27b-it",
        "62 5376 21504 32 16 128 262208 131072",
        "gemma-3-27b",
        tied=True,
        window=1024,
        global_every=6,
        extra_parameters=420_000_000,
    ),
    _row("microsoft/phi-4", "40 5120 17920 40 10 128 100352 16384", "phi-4"),
    _row("microsoft/Phi-4-mini-instruct", "32 3072 8192 24 8 128 200064 131072", "phi-4-mini", tied=True),
    _row("microsoft/Phi-3-mini-4k-instruct", "32 3072 8192 32 32 96 32064 4096", "phi-3-mini"),
    _row("ibm-granite/granite-3.1-8b-instruct", "40 4096 12800 32 8 128 49155 131072", "granite-3.1-8b", tied=True),
    _row("01-ai/Yi-34B-Chat", "60 7168 20480 56 8 128 64000 4096", "yi-34b"),
    _row("HuggingFaceTB/SmolLM2-135M-Instruct", "30 576 1536 9 3 64 49152 8192", "smollm2-135m", tied=True),
)
