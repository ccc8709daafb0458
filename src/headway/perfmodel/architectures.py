"""What a model is made of, as far as memory and step times need it: layer by layer, matrix by matrix.

Shapes and counts only. Reading a Hugging Face config.json is in `hf_config`, the table of known models in `models`,
how parts are split over GPUs and in which width they are kept in `weights`, what a token leaves behind in `kv`.

A layer is a mixer and an MLP. `mixers` and `mlps` hold one letter per layer:
mixers  f full attention, w attention within a window, l linear attention or Mamba, - none
mlps    d dense, m mixture of experts, - none
"""

import msgspec

LATENT_UP = "keys and values"
"""Name of the tensor that unpacks latent rows; engines keep a 16-bit copy of it beside a quantised one."""


class Part(msgspec.Struct, frozen=True):
    """One weight tensor of one layer, fused as engines fuse it (queries with keys and values, gate with up).

    Its parameters by how a tensor-parallel group shares them: `split` evenly; `kv` by KV heads, copied where there are
    more GPUs than heads; `copied` to every GPU. `expert`: all routed experts in one tensor, of which a token sees
    top-k. `wide`: kept in 16 bits whatever the quantisation (routers). `twice`: engines load the part by KV heads as
    keys and as values.
    """

    name: str
    split: int = 0
    kv: int = 0
    copied: int = 0
    expert: bool = False
    wide: bool = False
    twice: bool = False

    @property
    def parameters(self) -> int:
        """Of the whole tensor, over all GPUs."""
        return self.split + self.kv + self.copied


class Experts(msgspec.Struct, frozen=True):
    """Mixture of experts: `chosen` of `count` MLPs of width `intermediate`, and a `shared` width for all tokens.

    `latent` > 0: experts work on a projection of the hidden state to that width (Nemotron 3 Super).
    """

    count: int
    chosen: int
    intermediate: int
    shared: int = 0
    latent: int = 0

    def hidden_of(self, hidden: int) -> int:
        """Width that an expert reads and writes."""
        return self.latent or hidden


class Latent(msgspec.Struct, frozen=True):
    """Multi-head latent attention (DeepSeek-V2, section 2.1): one compressed row per token, not one per head.

    `query_rank` 0: queries are not compressed. `index_dim` > 0: sparse attention (DeepSeek-V3.2) keeps an fp8 key of
    that width and a scale per token beside it, chosen by `index_heads` heads.
    """

    kv_rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0
    index_dim: int = 0
    index_heads: int = 0

    @property
    def width(self) -> int:
        """Elements cached per token and layer."""
        return self.kv_rank + self.rope


class Linear(msgspec.Struct, frozen=True):
    """A layer with a state of fixed size: Mamba, gated delta nets, lightning attention.

    Elements of one layer over all GPUs: `conv` (in the model's type), `state` (`state_bytes` each, 0: the model's
    type). `output` of the layer's `parameters` are the output projection. `groups`: state groups, copied to every GPU
    where there are fewer than GPUs, `group_conv` elements of `conv` each.
    """

    parameters: int
    output: int
    conv: int
    state: int
    state_bytes: int = 0
    groups: int = 0
    group_conv: int = 0


class Vision(msgspec.Struct, frozen=True):
    """A vision tower. `tokens`: text tokens of its largest image (0: not said); `token_pixels`: pixels behind one.

    `videos`: times as many tokens as an image that its longest video may become. `stacks`: hidden states that it gives
    for every token (Qwen3-VL feeds several layers). `copied`: every GPU holds all of it (Mistral's own format).
    """

    parameters: int
    tokens: int = 0
    token_pixels: int = 0
    width: int = 0
    inner: int = 0
    token_patches: int = 1
    videos: int = 1
    stacks: int = 1
    copied: bool = False


class Context(msgspec.Struct, frozen=True):
    """Lengths in tokens: `longest` that the file allows, `before` the longest in versions before 0.30 (YaRN), `start`
    what newer versions begin with unasked (LongRoPE). `open_ended`: the file names none, and any may be asked for."""

    longest: int
    before: int
    start: int
    open_ended: bool = False


class Architecture(msgspec.Struct, frozen=True):
    """A decoder-only model.

    `window` > 0: 'w' layers see only that many tokens back; `window_heads`, `window_kv_heads` and `window_head_dim`
    where these differ from full attention's (0: the same). `value_dim`: of values where narrower than keys. `gated`:
    MLPs have three matrices, not two. `query_gate`: a gate as wide as the queries. `shared_kv_layers`: the last layers
    reuse the cache of earlier ones. `value_is_key`: full layers take values from the key projection. `chunked`: windows
    are chunks, not sliding. `family`: model_type of the file. `rope_elements`: cosines and sines that engines keep, one
    row per position. `vision`: a tower beside the text model. `other_parameters`: not matrices of layers (embeddings
    per layer). `quantisation`: of the checkpoint ("" = none), a name of `quantisation`, and `kept` what its names of
    tensors begin with that stay in 16 bits all the same. `kv_dtype`: of the cache as the checkpoint asks for it, which
    versions from 0.`kv_since` on obey. `context`: longest contexts by version, None where `max_position` is all there
    is to say.
    """

    id: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    tied: bool = False
    mixers: str = ""
    mlps: str = ""
    window: int = 0
    window_heads: int = 0
    window_kv_heads: int = 0
    window_head_dim: int = 0
    value_dim: int = 0
    chunked: bool = False
    gated: bool = True
    query_gate: bool = False
    shared_kv_layers: int = 0
    value_is_key: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    linear: Linear | None = None
    vision: Vision | None = None
    rope_elements: int = 0
    other_parameters: int = 0
    family: str = ""
    quantisation: str = ""
    kept: tuple[str, ...] = ()
    kv_dtype: str = ""
    kv_since: int = 0
    context: Context | None = None
    dtype: str = "bfloat16"
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for letters, known in ((self.mixers, "fwl-"), (self.mlps, "dm-")):
            if letters and (len(letters) != self.layers or set(letters) - set(known)):
                raise ValueError(f"{self.id}: {letters!r} is not one of {known!r} for each of {self.layers} layers")

    @property
    def mixer_letters(self) -> str:
        """One letter per layer; all full attention unless said otherwise."""
        return self.mixers or "f" * self.layers

    @property
    def mlp_letters(self) -> str:
        """One letter per layer; all dense unless said otherwise."""
        return self.mlps or "d" * self.layers

    @property
    def window_layers(self) -> int:
        """Layers whose attention is limited to `window` tokens."""
        return self.mixer_letters.count("w")

    @property
    def full_layers(self) -> int:
        """Layers that attend to everything before."""
        return self.mixer_letters.count("f")

    @property
    def linear_layers(self) -> int:
        """Layers with a state of fixed size."""
        return self.mixer_letters.count("l")

    def heads_of(self, letter: str) -> tuple[int, int]:
        """(KV heads, head dimension) of an attention layer."""
        if letter == "w":
            return self.window_kv_heads or self.kv_heads, self.window_head_dim or self.head_dim
        return self.kv_heads, self.head_dim

    def queries_of(self, letter: str) -> int:
        """Query heads of an attention layer."""
        return self.window_heads or self.heads if letter == "w" else self.heads

    def row_of(self, letter: str) -> int:
        """Elements of a key and a value of one KV head of an attention layer."""
        dim = self.heads_of(letter)[1]
        return dim + (self.value_dim or dim)

    def mixer_parts(self, letter: str) -> list[Part]:
        """Tensors of one mixer."""
        if letter == "l" and self.linear:
            out = self.linear.output
            return [Part("linear in", self.linear.parameters - out), Part("linear out", out)]
        if letter not in "fw":
            return []
        if self.latent:
            return _latent_parts(self, self.latent)
        (kv_heads, dim), row, heads = self.heads_of(letter), self.row_of(letter), self.queries_of(letter)
        shared = self.value_is_key and letter == "f"
        queries = self.hidden * heads * dim * (2 if self.query_gate else 1)
        return [
            Part("qkv", queries, kv=self.hidden * kv_heads * (dim if shared else row), twice=shared),
            Part("output", heads * (row - dim) * self.hidden),
        ]

    def mlp_parts(self, letter: str) -> list[Part]:
        """Tensors of one MLP."""
        wide = 2 if self.gated else 1
        if letter == "d":
            one = self.hidden * self.intermediate
            return [Part("up", wide * one), Part("down", one)]
        if letter != "m" or not self.experts:
            return []
        one = self.experts.hidden_of(self.hidden) * self.experts.intermediate
        parts = [
            Part("experts up", wide * one * self.experts.count, expert=True),
            Part("experts down", one * self.experts.count, expert=True),
            Part("router", copied=self.hidden * self.experts.count, wide=True),
        ]
        if self.experts.latent:
            parts.append(Part("latent", copied=2 * self.hidden * self.experts.latent))
        if self.experts.shared:
            shared = self.hidden * self.experts.shared
            parts += [Part("shared up", wide * shared), Part("shared down", shared)]
        return parts

    def layer_parts(self, first: int = 0, last: int | None = None) -> list[tuple[Part, int]]:
        """Matrices of the layers `first` (included) to `last` (excluded), each with how many layers have it."""
        counted: dict[Part, int] = {}
        for letter in self.mixer_letters[first:last]:
            for part in self.mixer_parts(letter):
                counted[part] = counted.get(part, 0) + 1
        for letter in self.mlp_letters[first:last]:
            for part in self.mlp_parts(letter):
                counted[part] = counted.get(part, 0) + 1
        return list(counted.items())

    @property
    def layer_parameters(self) -> int:
        """Matrix parameters of all layers; norms and biases are under 0.1 %."""
        return sum(part.parameters * count for part, count in self.layer_parts())

    @property
    def active_layer_parameters(self) -> int:
        """Matrix parameters of all layers that one token is multiplied with: `chosen` of the experts."""
        idle = 1 - self.experts.chosen / self.experts.count if self.experts else 0.0
        return self.layer_parameters - round(self.expert_parameters * idle)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of all layers; 0 for dense models."""
        return sum(part.parameters * count for part, count in self.layer_parts() if part.expert)

    @property
    def embedding_parameters(self) -> int:
        """One vocabulary x hidden matrix: the input embedding, and the head as well where tied."""
        return self.vocab * self.hidden

    @property
    def vision_parameters(self) -> int:
        """Of the vision tower and its projector."""
        return self.vision.parameters if self.vision else 0

    @property
    def parameters(self) -> int:
        """All parameters, norms and biases aside."""
        tables = self.embedding_parameters * (1 if self.tied else 2)
        return self.layer_parameters + tables + self.vision_parameters + self.other_parameters


def _latent_parts(model: Architecture, latent: Latent) -> list[Part]:
    """DeepSeek-V2, equations 9 to 19: down-projections are copied to every GPU, up-projections split by heads."""
    width = latent.nope + latent.rope
    parts = [
        Part("compression", copied=model.hidden * (latent.width + latent.query_rank)),
        Part("queries", (latent.query_rank or model.hidden) * model.heads * width),
        Part(LATENT_UP, latent.kv_rank * model.heads * (latent.nope + latent.value)),
        Part("output", model.heads * latent.value * model.hidden),
    ]
    if latent.index_dim:
        keys = model.hidden * (latent.index_dim + latent.index_heads)
        queries = latent.query_rank * latent.index_heads * latent.index_dim
        parts.append(Part("index", copied=keys + queries))
    return parts
