#!/bin/sh
# Sets the access pattern of the directory{% if nas.is_for_benchmark %}, and turns inline deduplication off for a benchmark{% endif %}.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

{% if nas.is_for_benchmark -%}
# What was set before, for undo.
kept=/ifs/.trunkline-runbook-dedupe

{% endif -%}
case ${1-} in
    do)
        isi set -R -a {{ nas.access_pattern }} {{ nas.export }}
{%- if nas.is_for_benchmark %}
        # Duplicate blocks of a benchmark would be found and not be written.
        if [ ! -s "$kept" ]; then
            isi dedupe inline settings view | sed -n 's/^ *Mode: *//p' >"$kept"
            [ -s "$kept" ] || fail "isi dedupe inline settings view shows no mode"
        fi
        isi dedupe inline settings modify --mode disabled
{%- endif %}
        ;;
    verify)
        isi get -d {{ nas.export }}
{%- if nas.is_for_benchmark %}
        isi dedupe inline settings view | grep -i 'Mode: *disabled' >/dev/null || fail "inline deduplication is on"
{%- endif %}
        ;;
    undo)
        isi set -R -a default {{ nas.export }}
{%- if nas.is_for_benchmark %}
        if [ -s "$kept" ]; then isi dedupe inline settings modify --mode "$(cat "$kept")"; fi
        rm -f "$kept"
{%- endif %}
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
