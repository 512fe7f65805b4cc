#!/bin/sh
# Runs the Spark tests on PySpark 3.5, which needs older libraries than the main environment: `make test-spark35`.
# Builds .venv35 on first use and after a change of the pins; safe to interrupt. Arguments go to pytest: paths, or `--first-cases`
# to run only the first case of each parametrized test.
set -eu
cd "$(dirname "$0")/.."

export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_SYSTEM_CERTS=1
main=.venv/bin
venv=.venv35
pins=scripts/spark35-requirements.txt
stamp=$venv/.built-from

if [ ! -x "$main/uv" ]; then
  echo "spark35: $main/uv is missing; run 'make setup' first" >&2
  exit 2
fi

wanted=$(cat "$pins" pyproject.toml | cksum)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
  echo "spark35: building $venv (PySpark 3.5; a minute or two on first use)" >&2
  rm -f "$stamp"
  "$main/uv" venv --quiet --allow-existing --python "$main/python" "$venv"
  "$main/uv" pip sync --quiet --python "$venv/bin/python" "$pins"
  "$main/uv" pip install --quiet --no-deps --python "$venv/bin/python" --editable .
  echo "$wanted" >"$stamp"
fi

# Kills, damage, and what others commit meanwhile are met by our own code and by Iceberg, which are the same on every Spark. So are
# the commands that we show: what they start is tested here by its own file.
same="cdc commands_run commit_rules damaged_footers deletes_damage deletes_machine deltas footer_fuzz_spark gone_table late_deletes late_fates
maintenance_killed maintenance_machine resume two_hosts"
if [ $# -eq 0 ] || [ "$*" = --first-cases ]; then
  set -- tests/spark "$@"
  for name in $same; do
    set -- "$@" "--ignore=tests/spark/test_$name.py"
  done
fi
exec "$venv/bin/python" -m pytest -n 2 --dist loadfile -m "not slow and not stack" "$@"
