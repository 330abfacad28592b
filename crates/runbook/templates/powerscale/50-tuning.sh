#!/bin/sh
# Sets the access pattern of the directory{% if nas.is_for_benchmark %}, and turns inline deduplication off for a benchmark{% endif %}.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

# The pattern that the directory has, as `isi set -a` takes it: `isi get` says concurrency for default.
pattern() {
    isi get -d {{ nas.export }} |
        awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "PERFORMANCE") field = i } NR == 2 && field { print $field }' |
        sed 's/^concurrency$/default/'
}

is_pattern() {
    case $1 in default | streaming | random) ;; *) return 1 ;; esac
}

case ${1-} in
    do)
        # What cannot be read could not be put back.
        if ! noted pattern; then
            was=$(pattern)
            is_pattern "$was" || fail "isi get -d {{ nas.export }} shows no access pattern: what it is, is not known"
            note pattern "$was"
        fi
        isi set -R -a {{ nas.access_pattern }} {{ nas.export }}
{%- if nas.is_for_benchmark %}
        # Duplicate blocks of a benchmark would be found and not be written.
        if ! noted dedupe; then
            mode=$(isi dedupe inline settings view | sed -n 's/^ *Mode: *//p')
            [ -n "$mode" ] || fail "isi dedupe inline settings view shows no mode"
            note dedupe "$mode"
        fi
        isi dedupe inline settings modify --mode disabled
{%- endif %}
        ;;
    verify)
        isi get -d {{ nas.export }}
        now=$(pattern)
        [ -n "$now" ] || fail "isi get -d {{ nas.export }} shows no access pattern: what it is, is not known"
        [ "$now" = {{ nas.access_pattern }} ] || fail "the access pattern of {{ nas.export }} is $now: isi get -d"
{%- if nas.is_for_benchmark %}
        isi dedupe inline settings view | grep -i 'Mode: *disabled' >/dev/null || fail "inline deduplication is on"
{%- endif %}
        ;;
    undo)
        if noted pattern; then
            was=$(before pattern)
            is_pattern "$was" || fail "what the access pattern was is not known: isi set -R -a PATTERN {{ nas.export }}"
            isi set -R -a "$was" {{ nas.export }}
            forget pattern
        fi
{%- if nas.is_for_benchmark %}
        if noted dedupe; then
            isi dedupe inline settings modify --mode "$(before dedupe)"
            forget dedupe
        fi
{%- endif %}
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
