"""One real llama.cpp server in a process of its own:
`python llama_server.py MODEL.gguf PORT SLOTS CONTEXT FOLDER [embeds]`.

Runs until it is killed or its standard input closes, so that it does not outlive the tests.
"""

import sys

import xllamacpp


def main(model: str, port: int, slots: int, context: int, folder: str, embeds: bool) -> None:
    """Serve `model` on loopback with `slots` slots of `context` tokens each, which may be saved in `folder`.
    `embeds`: it answers to embeddings, too."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = ["tiny"]
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.slot_save_path = f"{folder}/"
    if embeds:
        params.embedding = True
        # a mean would leave out what the slot still had cached of the prompt before: it depends on the order (measured)
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], "embeds" in sys.argv[6:])
