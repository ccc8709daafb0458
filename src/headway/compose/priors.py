"""What a roofline knows of a replica before anything was measured: core is told it as plain features of its spec."""

from headway.core.replica import ReplicaSpec
from headway.perfmodel import catalogue
from headway.perfmodel.steptime import StepModel


def features(spec: ReplicaSpec) -> dict[str, float]:
    """Priors for the learned speeds where GPU and model are in the catalogue, else none: the speed is learned from
    the defaults. What the spec states already stays."""
    if spec.features or not (spec.gpu and spec.model):
        return spec.features
    try:
        model, gpu = catalogue.model(spec.model), catalogue.gpu(spec.gpu)
        precision = catalogue.precision(spec.precision or "auto")
    except ValueError:  # a model or card of one's own; catalogue.UnknownName is a ValueError
        return {}
    return StepModel(model, gpu, precision=precision, tp=spec.gpu_count, kv_dtype="auto").features()
