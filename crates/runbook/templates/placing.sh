# shellcheck shell=bash
# Sourced by the steps of this folder: puts files in place so that they can be taken back whole.
#
# What was there before is kept below $state, and is put back by take_back. When the last file has
# been taken back, $state is gone too.
#
# With pipefail, a command before `grep -q` fails if grep ends first: so grep reads to the end.

state=${RUNBOOK_STATE:-/var/lib/trunkline-runbook}
# Each step has lists of its own, also where two folders are used on one machine.
step=${PWD##*/}-${0##*/}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || fail "run this as root"
}

has_systemd() {
    [ -d /run/systemd/system ]
}

# place FILE DESTINATION MODE
place() {
    local directory
    directory=$(dirname "$2")
    if [ ! -e "$state/placed$2" ]; then
        mkdir -p "$state/placed$directory"
        if [ -e "$2" ]; then
            mkdir -p "$state/kept$directory"
            cp -a "$2" "$state/kept$2"
        fi
        if [ ! -d "$directory" ]; then
            mkdir -p "$directory"
            echo "$directory" >>"$state/made"
        fi
        : >"$state/placed$2"
    fi
    # The file appears whole: it is renamed.
    install -m "$3" "$1" "$2.new"
    mv -f "$2.new" "$2"
}

# put_back DESTINATION: what was there before is there again, and the note stays until take_back.
put_back() {
    [ -e "$state/placed$1" ] || return 0
    if [ -e "$state/kept$1" ]; then
        cp -a "$state/kept$1" "$1.new"
        mv -f "$1.new" "$1"
    else
        rm -f "$1"
    fi
}

# take_back DESTINATION
take_back() {
    [ -e "$state/placed$1" ] || return 0
    if [ -e "$state/kept$1" ]; then
        mv -f "$state/kept$1" "$1"
    else
        rm -f "$1"
    fi
    rm -f "$state/placed$1"
    tidy_up
}

# Removes directories that place has made, once they are empty, and what is empty below $state.
tidy_up() {
    local directory left=()
    if [ -e "$state/made" ]; then
        while read -r directory; do
            rmdir "$directory" 2>/dev/null || left+=("$directory")
        done <"$state/made"
        rm -f "$state/made"
        if [ ${left[0]+set} ]; then printf '%s\n' "${left[@]}" >"$state/made"; fi
    fi
    [ ! -d "$state" ] || find "$state" -depth -type d -empty -delete
}

# is_placed FILE DESTINATION
is_placed() {
    cmp -s "$1" "$2" || fail "$2 is not ${1##*/} of this folder"
}

# place_service NAME VERB: puts the program NAME and its unit in place, and starts the unit now and
# at every start. A unit that runs takes the new plan without being stopped. Without systemd the program
# is run with the verb.
place_service() {
    place "files/$1" "/usr/local/sbin/$1" 755
    place "files/$1.service" "/etc/systemd/system/$1.service" 644
    if has_systemd; then
        systemctl daemon-reload
        systemctl enable "$1.service"
        systemctl reload-or-restart "$1.service"
    else
        # Word splitting is wanted: a verb and its option.
        # shellcheck disable=SC2086
        "/usr/local/sbin/$1" $2
    fi
}

# take_back_service NAME: takes back what place_service has put in place, once it is stopped.
take_back_service() {
    take_back "/etc/systemd/system/$1.service"
    take_back "/usr/local/sbin/$1"
    if has_systemd; then systemctl daemon-reload; fi
}

# remember LIST WORD: notes what this step has changed; recalled takes the list back.
remember() {
    mkdir -p "$state"
    grep -qxF "$2" "$state/$step.$1" 2>/dev/null || echo "$2" >>"$state/$step.$1"
}

recalled() {
    [ -e "$state/$step.$1" ] || return 0
    tac "$state/$step.$1"
    rm -f "$state/$step.$1"
    tidy_up
}

# The loaded modules, the oldest first. RUNBOOK_MODULES is for tests.
loaded() {
    [ ! -e "${RUNBOOK_MODULES:-/proc/modules}" ] || cut -d " " -f 1 "${RUNBOOK_MODULES:-/proc/modules}" | tac
}

# load_modules MODULE...: loads what is not loaded, and remembers that and what came with it.
load_modules() {
    local module before
    before=$(loaded)
    for module in "$@"; do
        [ -d "/sys/module/${module//-/_}" ] || modprobe "$module"
    done
    while read -r module; do
        remember modules "$module"
    done < <(loaded | grep -vxF -e "$before" || :)
}

# has_loaded MODULE: whether load_modules has loaded it in this step.
has_loaded() {
    grep -qxF "${1//-/_}" "$state/$step.modules" 2>/dev/null
}

# unload_modules: unloads what load_modules has loaded and nobody uses, the newest first. Modules that
# were loaded before stay, also where nobody uses them. A module may have loaded a newer one that it
# uses (crc64_rocksoft does), so what is in use is tried again after others are gone.
unload_modules() {
    local module left kept is_over=''
    left=$(recalled modules)
    while [ -n "$left" ] && [ -z "$is_over" ]; do
        kept='' is_over=yes
        for module in $left; do
            [ -d "/sys/module/$module" ] || continue
            if ! carries_controllers "$module" && rmmod "$module" 2>/dev/null; then
                is_over=''
            else
                kept="$kept $module"
            fi
        done
        left=$kept
    done
    for module in $left; do
        if carries_controllers "$module"; then
            echo "$module stays loaded: NVMe controllers use it" >&2
        else
            echo "$module stays loaded: it is in use" >&2
        fi
    done
}

# carries_controllers MODULE: whether it is the transport of NVMe controllers. They do not count as its
# users: without it they are gone, with what is mounted from them.
carries_controllers() {
    [[ $1 = nvme_* ]] && cat /sys/class/nvme/*/transport 2>/dev/null | grep -xF "${1#nvme_}" >/dev/null
}

# The names of all installed packages.
installed() {
    if command -v dpkg-query >/dev/null; then
        # shellcheck disable=SC2016 # dpkg-query reads ${...}.
        dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' | sed -n 's/^.i. //p'
    else
        rpm -qa --qf '%{NAME}.%{ARCH}\n'
    fi | sort -u
}

# install_packages PACKAGE...: installs what is missing, and remembers that and what came with it.
# Packages that are installed already, and those that are updated, are not remembered.
install_packages() {
    local package before missing=()
    for package in "$@"; do
        if command -v dpkg-query >/dev/null; then
            # shellcheck disable=SC2016 # dpkg-query reads ${...}.
            dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep 'ok installed' >/dev/null && continue
        else
            rpm -q "$package" >/dev/null 2>&1 && continue
        fi
        missing+=("$package")
    done
    [ ${missing[0]+set} ] || return 0
    before=$(installed)
    package_tool install -y "${missing[@]}"
    for package in $(comm -13 <(echo "$before") <(installed)); do remember packages "$package"; done
}

# remove_packages: removes what install_packages has installed, unless another package needs it now.
# dpkg and rpm refuse such a package, where apt-get and dnf would remove the other one too. What only
# a later one of the list needs is removed in the next round.
remove_packages() {
    local package left kept is_over=''
    left=$(recalled packages)
    while [ -n "$left" ] && [ -z "$is_over" ]; do
        kept='' is_over=yes
        for package in $left; do
            if remove_one "$package"; then is_over=''; else kept="$kept $package"; fi
        done
        left=$kept
    done
    [ -z "$left" ] || echo "these packages stay, as others need them now:$left" >&2
}

# remove_one PACKAGE: removes it with its configuration. Succeeds if it is gone.
remove_one() {
    if command -v dpkg-query >/dev/null; then
        DEBIAN_FRONTEND=noninteractive dpkg --purge "$1" >/dev/null 2>&1
    else
        rpm -e "$1" >/dev/null 2>&1 || ! rpm -q "$1" >/dev/null 2>&1
    fi
}

package_tool() {
    if command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get "$@"
    elif command -v dnf >/dev/null; then
        dnf "$@"
    else
        yum "$@"
    fi
}
