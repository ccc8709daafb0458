"""Every model known by name; the rows are in one module per group of makers."""

from headway.perfmodel import models_experts, models_google, models_llama, models_others, models_qwen
from headway.perfmodel.architectures import Architecture

ARCHITECTURES: tuple[Architecture, ...] = (
    *models_llama.ROWS,
    *models_qwen.ROWS,
    *models_google.ROWS,
    *models_others.ROWS,
    *models_experts.ROWS,
)
"""Order is what listings show: the most served families first."""
