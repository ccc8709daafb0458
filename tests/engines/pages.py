"""Load reports written for tests in the shape of recorded ones, so that dialects are tested without the recordings."""

import msgspec

VLLM = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79597926675e+09
process_cpu_seconds_total 9.14
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="discard_all"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1771.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 64.0
vllm:num_preemptions_total{engine="0",model_name="tiny"} 3.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 1771.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 3746.0
vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 1.0
vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_tokens"} 2.0
vllm:cache_config_info{block_size="32",engine="0",kv_cache_size_tokens="1536",num_gpu_blocks="48"} 1.0
"""

VLLM_DATA_PARALLEL = """\
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 5.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="1",model_name="tiny"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.25
vllm:num_preemptions_total{engine="0",model_name="tiny"} 1.0
vllm:num_preemptions_total{engine="1",model_name="tiny"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="tiny"} 200.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 10.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 20.0
vllm:cache_config_info{engine="0",kv_cache_size_tokens="1000"} 1.0
vllm:cache_config_info{engine="1",kv_cache_size_tokens="3000"} 1.0
"""

VLLM_OLD = """\
vllm:num_requests_running{model_name="tiny"} 4.0
vllm:num_requests_waiting{model_name="tiny"} 0.0
vllm:gpu_cache_usage_perc{model_name="tiny"} 0.1
vllm:gpu_prefix_cache_queries_total{model_name="tiny"} 50.0
vllm:gpu_prefix_cache_hits_total{model_name="tiny"} 10.0
vllm:num_preemptions_total{model_name="tiny"} 0.0
vllm:prompt_tokens_total{model_name="tiny"} 7.0
vllm:generation_tokens_total{model_name="tiny"} 8.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0
"""

VLLM_TWO_MODELS = """\
vllm:num_requests_running{engine="0",model_name="a"} 1.0
vllm:num_requests_running{engine="0",model_name="b"} 50.0
vllm:num_requests_waiting{engine="0",model_name="a"} 0.0
vllm:num_requests_waiting{engine="0",model_name="b"} 900.0
"""

SGLANG_LOADS = b"""{"timestamp":"2026-11-29T19:14:27+00:00","version":"0.5.23","loads":[
{"timestamp":1795979667.75,"dp_rank":0,"num_running_reqs":4,"num_waiting_reqs":2,"num_used_tokens":4860,
"num_total_tokens":5460,"max_total_num_tokens":8192,"max_running_requests":2048,"token_usage":0.5933},
{"timestamp":1795979667.75,"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":140,
"num_total_tokens":140,"max_total_num_tokens":8192,"max_running_requests":2048,"token_usage":0.0171}]}"""

SGLANG = """\
sglang:max_total_num_tokens{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 8192.0
sglang:max_total_num_tokens{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 8192.0
sglang:num_running_reqs{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 4.0
sglang:num_running_reqs{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 4.0
sglang:num_queue_reqs{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.58
sglang:num_used_tokens{engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 4748.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="false",model_name="tiny"} 7029.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="true",model_name="tiny"} 3861.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="tiny"} 4944.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="tiny"} 10264.0
sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="tiny"} 9278.0
"""

LLAMACPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1200
llamacpp:prompt_tokens_cached_total 30
llamacpp:tokens_predicted_total 77
llamacpp:requests_processing 4
llamacpp:requests_deferred 3
"""

LLAMACPP_SLOTS = b"""[
{"id":0,"n_ctx":2048,"speculative":false,"is_processing":true,"id_task":4,"n_prompt_tokens":360,
"n_prompt_tokens_processed":300,"n_prompt_tokens_cache":0,"next_token":[{"n_remain":240,"n_decoded":60}]},
{"id":1,"n_ctx":2048,"speculative":false,"is_processing":true,"id_task":2,"n_prompt_tokens":361,
"n_prompt_tokens_processed":300,"n_prompt_tokens_cache":0,"next_token":[{"n_remain":239,"n_decoded":61}]},
{"id":2,"n_ctx":2048,"speculative":false,"is_processing":false}]"""

LLAMACPP_PROPS = b"""{"default_generation_settings":{"params":{},"n_ctx":2048},"total_slots":4,"model_alias":"tiny",
"model_ftype":"all F32","endpoint_slots":true,"endpoint_metrics":true,"build_info":"b11434-abc","is_sleeping":false}"""

TRTLLM = """\
trtllm_num_requests_running{model_name="tiny"} 3
trtllm_num_requests_waiting{model_name="tiny"} 1
trtllm_kv_cache_utilization{model_name="tiny"} 0.25
trtllm_kv_cache_max_blocks{model_name="tiny"} 1000
trtllm_kv_cache_tokens_per_block{model_name="tiny"} 32
trtllm_max_num_active_requests{model_name="tiny"} 16
"""

TRTLLM_ITERATIONS = b"""[
{"iter":1,"numActiveRequests":9,"kvCacheStats":{"maxNumBlocks":1000,"usedNumBlocks":900,"freeNumBlocks":100,
"tokensPerBlock":32}},
{"iter":2,"numActiveRequests":1,"maxNumActiveRequests":2048,"numQueuedRequests":5,"gpuMemUsage":56401920000,
"kvCacheStats":{"maxNumBlocks":1000,"usedNumBlocks":250,"freeNumBlocks":750,"tokensPerBlock":32,"cacheHitRate":0.1}}]"""

TRITON = """\
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.01
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 99
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 100
"""

TGI = """\
tgi_queue_size 7
tgi_batch_current_size 3
tgi_batch_current_max_tokens 1234
"""

DCGM = """\
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-aa",Hostname="n1",pod="vllm-0",namespace="llm"} 1000
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-bb",Hostname="n1",pod="vllm-1",namespace="llm"} 2000
DCGM_FI_DEV_FB_FREE{gpu="2",UUID="GPU-cc",Hostname="n1"} 3000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",Hostname="n1",pod="vllm-0",namespace="llm"} 80000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-bb",Hostname="n1",pod="vllm-1",namespace="llm"} 79000
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-aa",Hostname="n1",pod="vllm-0",namespace="llm"} 559
"""


def cards(owner: str, *models: str, **more: object) -> bytes:
    """A `/v1/models` answer."""
    data = [{"id": model, "object": "model", "created": 1, "owned_by": owner, **more} for model in models]
    return msgspec.json.encode({"object": "list", "data": data})
