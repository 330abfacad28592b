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
