#!/bin/bash
# Makes files of commands of before.smcli, which 05-save.smcli has saved: what was there before.
#
#   ./undo-10-basic.sh           makes undo-10-basic.smcli: the settings that 10-basic.smcli has changed
#   ./undo-10-basic.sh ports     makes undo-15-ports.smcli: the addresses of the host ports
#
# Read the file, and run it: ./run.sh undo-10-basic.smcli. The time of the array stays. If before.smcli lacks
# one of the values, has two of it or one of another form, no file is made, and what to do by hand is printed.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"

saved=before.smcli

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

case $#-${1-} in
    0-) made=undo-10-basic.smcli ;;
    1-ports) made=undo-15-ports.smcli ;;
    *)
        echo "usage: $0 [ports]" >&2
        exit 2
        ;;
esac
# One of an earlier run would be taken for this one's.
rm -f "$made"
[ -s "$saved" ] || fail "there is no $saved: ./run.sh 05-save.smcli makes it, before 10-basic.smcli runs"

# One command a line, without comments, each run of blanks as one. What is within quotes is no comment, no end of
# a command and no key.
commands() {
    tr -d '\000\r' <"$saved" | sed '1s/^\xef\xbb\xbf//' | awk '
        function done() {
            gsub(/[ \t]+/, " ", command)
            sub(/^ /, "", command)
            sub(/ $/, "", command)
            if (command != "") print command ";"
            command = ""
        }
        {
            count = length($0)
            for (at = 1; at <= count; at++) {
                c = substr($0, at, 1)
                if (c == "\"") quoted = !quoted
                else if (!quoted && c == "/" && substr($0, at, 2) == "//") break
                else if (!quoted && c == ";") { done(); continue }
                command = command c
            }
            # A text does not go on in the next line.
            quoted = 0
            command = command " "
        }
        END { done() }'
}

all=$(commands)
missing=() by_hand=()

# wants NAME COMMAND FOUND: keeps the one line of FOUND, or notes what is missing: its name, and the command.
wants() {
    if [ -n "$3" ] && [ "$(sort -u <<<"$3" | wc -l)" = 1 ]; then
        sort -u <<<"$3" >>"$file"
    else
        missing+=("$1")
        by_hand+=("$2")
    fi
}

# setting KEY FORM: the commands that set it, all by this spelling of the key.
setting() {
    grep -iE '^set storageArray ' <<<"$all" | sed 's/ *= */=/g' | grep -ioE " $1=(\"[^\"]*\"|[^ ;\"]+)[ ;]" |
        sed -e 's/^[^=]*=//' -e 's/[ ;]$//' | grep -ixE -- "$2" | sed -e "s/^/set storageArray $1=/" -e 's/$/;/' || :
}

file=$(mktemp)
trap 'rm -f "$file"' EXIT
{
    echo "// What {{ array.label }} had before, by $saved. Run it with ./run.sh $made"
    echo
    echo "on error stop;"
    echo
} >"$file"

if [ "$made" = undo-15-ports.smcli ]; then
{%- for port in array.ports %}
    wants "the address of port {{ port.label }} of {{ port.controller }}" 'set controller [{{ port.controller }}] hostPort ["{{ port.label }}"] IPV4Address=ADDRESS;' \
        "$(grep -iE '^set controller ?\[ ?"?{{ port.controller }}"? ?\] ?hostPort ?\[ ?"?{{ port.label }}"? ?\] .*IPV4Address ?= ?[0-9]+(\.[0-9]+){3}[ ;]' <<<"$all" || :)"
{%- endfor %}
else
    while read -r key form; do
        wants "$key" "set storageArray $key=VALUE;" "$(setting "$key" "$form")"
    done <<'LIST'
userLabel "[^"]+"
cacheBlockSize [0-9]+
cacheFlushStart [0-9]+
mediaScanRate ([0-9]+|disabled)
autoLoadBalancingEnable (TRUE|FALSE)
defaultHostType ([0-9]+|"[^"]+")
LIST
    wants hostConnectivityReporting 'set storageArray hostConnectivityReporting VALUE;' \
        "$(grep -ioE '^set storageArray hostConnectivityReporting (enable|disable);' <<<"$all" |
            sed -E 's/^.* ([^ ]*);$/set storageArray hostConnectivityReporting \L\1;/' || :)"
fi

# Half of it would look like all.
if [ ${missing[0]+set} ]; then
    {
        printf '%s does not say, in one form that is known, what these were:' "$saved"
        printf ' %s;' "${missing[@]}"
        echo
        echo "No file is made. By hand: look them up in before.txt (the profile that 05-save.smcli has shown), complete these"
        echo "commands, write them into $made after what can be read of $saved:"
        echo
        cat "$file"
        printf '%s\n' "${by_hand[@]}"
        echo
        echo "and run ./run.sh $made; or set them in System Manager. A setting that stays may be left out."
    } >&2
    exit 1
fi
mv -f "$file" "$made"
chmod 644 "$made"
echo "made $made"
