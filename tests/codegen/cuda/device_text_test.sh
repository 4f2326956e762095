#!/usr/bin/env bash
exec python3 tests/codegen/cuda/device_text_test.py
