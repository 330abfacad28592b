# shellcheck shell=sh
# Sourced by the steps of this folder, which run on a node of the cluster.

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# knows OPTION... -- COMMAND...: prints the first option that the cluster's release has. Releases
# differ in the spelling, so the cluster is asked.
knows() {
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    help=$("$@" --help 2>&1) || :
    for option in $options; do
        case $help in
            *"--$option"[!a-z0-9-]* | *"--$option")
                echo "$option"
                return
                ;;
        esac
    done
    fail "$* has none of:$options; see its --help"
}

# field KEY: the value of a line `Key: value` of the standard input, without blanks. Long values go on in the
# next lines.
field() {
    awk -v key="$1" '
        /^ *[A-Z][A-Za-z0-9 ()-]*:( |$)/ { is_it = 0 }
        { line = $0; sub(/^ +/, "", line) }
        index(line, key ":") == 1 { is_it = 1; line = substr(line, length(key) + 2) }
        is_it { gsub(/ /, "", line); value = value line }
        END { print value }'
}

# differs A B: whether two lists with commas have other members, in any order.
differs() {
    [ "$(echo "$1" | tr , '\n' | sort -u)" != "$(echo "$2" | tr , '\n' | sort -u)" ]
}

# What the steps have changed, so that undo takes back that and nothing else. It is kept in the
# cluster's file system: the next step may run on another node.
state=${RUNBOOK_STATE:-/ifs/.trunkline-runbook}

# noted NAME: whether a step has noted that.
noted() {
    [ -e "$state/$1" ]
}

# note NAME [TEXT]: notes that a step has changed something, and what was there before.
note() {
    mkdir -p "$state"
    echo "${2-}" >"$state/$1"
}

# before NAME: what was there before.
before() {
    cat "$state/$1"
}

# forget NAME: it is taken back.
forget() {
    rm -f "$state/$1"
    rmdir "$state" 2>/dev/null || :
}
