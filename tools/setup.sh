#!/usr/bin/env bash
# Installs what building and testing need on Debian 12 or 13; does nothing where it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
