"""GPUs by name: what memory holds, how fast it is read, how fast the tensor cores multiply, what joins the cards.

Only published or logged figures live here; how much of them an engine reaches is in `steptime`. Memory is what the
driver reports to an engine (its logs), not the marketing size. FLOP/s are dense, without sparsity. 0 means that the
tensor cores have no such type, and the engine then computes in 16 bits.
"""

import msgspec

GIB = 1024**3


class Gpu(msgspec.Struct, frozen=True):
    """One accelerator. `link_bytes_per_s` is one direction of one card's link to its peers; `generation` names the
    tensor cores, whose efficiencies `calibration` knows; `multiprocessors` (SMs) are in the same papers."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    int8_flops: float
    link: str
    link_bytes_per_s: float
    aliases: tuple[str, ...] = ()
    fp4_flops: float = 0.0
    generation: str = "hopper"
    multiprocessors: int = 132

    @property
    def roomy(self) -> bool:
        """vLLM gives bigger batches to cards of 70 GiB and more that are not an A100 (its engine arguments)."""
        return self.memory_bytes >= 70 * GIB and not self.name.startswith("a100")


def _gpu(
    name: str,
    gib: float,
    tb_per_s: float,
    bf16: float,
    fp8: float,
    int8: float,
    link: str,
    gb_per_s: float,
    *also: str,
    fp4: float = 0.0,
    made: str = "hopper",
    sms: int = 132,
) -> Gpu:
    tera = 1e12
    return Gpu(
        name=name,
        memory_bytes=int(gib * GIB),
        bandwidth_bytes_per_s=tb_per_s * tera,
        bf16_flops=bf16 * tera,
        fp8_flops=fp8 * tera,
        int8_flops=int8 * tera,
        link=link,
        link_bytes_per_s=gb_per_s * 1e9,
        aliases=also,
        fp4_flops=fp4 * tera,
        generation=made,
        multiprocessors=sms,
    )


GPUS: tuple[Gpu, ...] = (
    # NVIDIA H100 SXM5 datasheet; 79.19 GiB in vLLM's logs on HBM3 cards.
    _gpu("h100-80gb", 79.19, 3.35, 989, 1979, 1979, "nvlink", 450, "h100", "h100-sxm", "h100-sxm5-80gb", sms=132),
    # NVIDIA H100 PCIe datasheet (HBM2e).
    _gpu("h100-pcie-80gb", 79.11, 2.0, 756, 1513, 1513, "pcie", 64, "h100-pcie", sms=114),
    # NVIDIA H200 SXM datasheet; 139.80 GiB as the driver reports it.
    _gpu("h200-141gb", 139.80, 4.8, 989, 1979, 1979, "nvlink", 450, "h200", "h200-sxm", sms=132),
    # NVIDIA H20 datasheet (96 GB HBM3, 4 TB/s, 148 TFLOP/s bf16, 296 fp8); memory taken as on GH200 of the same size.
    _gpu("h20-96gb", 94.99, 4.0, 148, 296, 296, "nvlink", 450, "h20", "h20-sxm", sms=78),
    # NVIDIA GH200 datasheet, 96 GB HBM3.
    _gpu("gh200-96gb", 94.99, 4.0, 989, 1979, 1979, "nvlink", 450, "gh200", sms=132),
    # NVIDIA B200 (DGX B200 datasheet per GPU: 180 GB, 8 TB/s, 2.25/4.5 PFLOP/s dense bf16/fp8).
    _gpu("b200-180gb", 178.36, 8.0, 2250, 4500, 4500, "nvlink", 900, "b200", fp4=9000, made="blackwell", sms=148),
    # NVIDIA B300 (DGX B300 datasheet per GPU: 288 GB, 8 TB/s); 268.6 GiB as the driver reports it.
    _gpu(
        "b300-288gb", 268.6, 8.0, 2250, 4500, 150, "nvlink", 900, "b300", "gb300", fp4=13500, made="blackwell", sms=148
    ),
    # NVIDIA GB200 NVL72 datasheet per GPU (186 GB, 8 TB/s, 2.5/5/10 PFLOP/s dense bf16/fp8/fp4).
    _gpu("gb200-186gb", 184.2, 8.0, 2500, 5000, 5000, "nvlink", 900, "gb200", fp4=10000, made="blackwell", sms=148),
    # NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet: GDDR7 at 1597 GB/s, fp4 4 PFLOP/s with sparsity.
    _gpu(
        "rtxpro6000-96gb", 94.97, 1.597, 504, 1007, 1007, "pcie", 64, "rtxpro6000", fp4=2015, made="blackwell", sms=188
    ),
    # NVIDIA A100 SXM4 80 GB datasheet; 79.15 GiB in logs.
    _gpu("a100-80gb", 79.15, 2.039, 312, 0, 624, "nvlink", 300, "a100", "a100-sxm-80gb", made="ampere", sms=108),
    # NVIDIA A100 SXM4 40 GB datasheet; 39.39 GiB in logs.
    _gpu("a100-40gb", 39.39, 1.555, 312, 0, 624, "nvlink", 300, "a100-sxm-40gb", made="ampere", sms=108),
    # NVIDIA A30 datasheet (24 GB HBM2).
    _gpu("a30-24gb", 23.6, 0.933, 165, 0, 330, "pcie", 32, "a30", made="ampere", sms=56),
    # NVIDIA L40S datasheet (366/733 TFLOP/s with sparsity halved); 44.42 GiB in logs with ECC on.
    _gpu("l40s-48gb", 44.42, 0.864, 362, 733, 733, "pcie", 32, "l40s", made="ada", sms=142),
    # NVIDIA A10 datasheet (24 GB GDDR6); the A10G of AWS differs slightly.
    _gpu("a10-24gb", 22.06, 0.600, 125, 0, 250, "pcie", 32, "a10", "a10g-24gb", "a10g", made="ampere", sms=72),
    # NVIDIA L4 datasheet (dense figures are half of those with sparsity).
    _gpu("l4-24gb", 22.05, 0.300, 121, 242, 242, "pcie", 32, "l4", made="ada", sms=58),
    # NVIDIA T4 datasheet: fp16 only, no bf16 tensor cores; 14.56 GiB in logs.
    _gpu("t4-16gb", 14.56, 0.320, 65, 0, 130, "pcie", 16, "t4", made="turing", sms=40),
    # NVIDIA Ada whitepaper, GeForce RTX 4090, fp16 with fp32 accumulation.
    _gpu("rtx4090-24gb", 23.52, 1.008, 165, 330, 660, "pcie", 32, "rtx4090", "rtx-4090", "4090", made="ada", sms=128),
    # NVIDIA Ampere GA102 whitepaper, GeForce RTX 3090, fp16 with fp32 accumulation.
    _gpu("rtx3090-24gb", 23.58, 0.936, 71, 0, 284, "pcie", 32, "rtx3090", "rtx-3090", "3090", made="ampere", sms=82),
    # NVIDIA Ada whitepaper, GeForce RTX 4060 (8 GB); 7.63 GiB as the driver reports it.
    _gpu("rtx4060-8gb", 7.63, 0.272, 60, 121, 242, "pcie", 16, "rtx4060", "rtx-4060", "4060", made="ada", sms=24),
    # NVIDIA RTX A5000 datasheet (dense).
    _gpu("a5000-24gb", 23.68, 0.768, 111, 0, 222, "pcie", 32, "a5000", "rtx-a5000", made="ampere", sms=64),
    # NVIDIA A40 datasheet (dense); 44.42 GiB as the driver reports it with ECC on.
    _gpu("a40-48gb", 44.42, 0.696, 150, 0, 299, "pcie", 32, "a40", made="ampere", sms=84),
    # NVIDIA V100 SXM2 datasheet: fp16 only; 31.73 GiB as the driver reports it.
    _gpu("v100-32gb", 31.73, 0.900, 125, 0, 0, "nvlink", 150, "v100", made="turing", sms=80),
    # NVIDIA RTX 5090 (Blackwell whitepaper), fp16 with fp32 accumulation; 31.36 GiB as the driver reports it.
    _gpu(
        "rtx5090-32gb", 31.36, 1.792, 210, 419, 838, "pcie", 64, "rtx5090", "5090", fp4=838, made="blackwell", sms=170
    ),
    # NVIDIA RTX A6000 datasheet (dense).
    _gpu("a6000-48gb", 47.41, 0.768, 155, 0, 309, "pcie", 32, "a6000", "rtx-a6000", made="ampere", sms=84),
)


def custom(gib: float) -> Gpu:
    """A card of which only the memory is known: of 70 GiB and more like an H100 of that size, below like an L40S."""
    like = next(one for one in GPUS if one.name == ("h100-80gb" if gib >= 70 else "l40s-48gb"))
    return msgspec.structs.replace(like, name=f"a card of {gib:g} GiB", memory_bytes=int(gib * GIB), aliases=())
