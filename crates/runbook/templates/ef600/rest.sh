#!/bin/bash
# Configures the array by the requests of rest-requests.json, and takes that back.
#
#   ./rest.sh do [STEP...]        sends what the array does not have yet: it may run again at any time
#   ./rest.sh verify [STEP...]    compares the array with plan.json: ./verify.py
#   ./rest.sh undo [STEP...]      takes back what `do` has made, the last step first
#
# The steps are settings, volumes, hosts and mappings, in this order; without one, all of them. Before
# anything is made its name is noted in rest-made/, with its id afterwards, and undo removes nothing else.
# What was set before is kept there too, and which array it is: keep this directory.
#
# Undo asks for all that it needs before its first change:
#   HOSTS_DISCONNECTED=yes      for `mappings`: unmapping takes the volumes away from EVERY host of the plan,
#                               so unmount and disconnect on all of them first
#   DELETE_DATA=yes             for `volumes`: it DELETES the volumes with their data
#   CHANGE_PORT_ADDRESSES=yes   for `settings`, also of `do`, where the address of a host port would change
#                               while a volume is mapped: hosts lose their paths through it
#
# The password of the user admin is read from the file that EF600_PASSWORD_FILE names, or from
# EF600_PASSWORD. curl reads it from its standard input, so no command line has it.
# EF600_VALIDATE_CERTS=yes refuses a certificate that nobody signed. EF600_URL is another address
# instead of the controllers'. WAIT_S bounds the wait for volumes that are being formatted (default: 6
# hours); CONFIRM_S is between two answers that name none (default: 15 seconds). Needs curl and jq.
set -euo pipefail
cd "$(dirname "$0")"

requests='rest-requests.json'
made='rest-made'

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

usage() {
    echo "usage: $0 do|verify|undo [settings] [volumes] [hosts] [mappings]" >&2
    exit 2
}

verb=${1-}
case $verb in do | verify | undo) shift ;; *) usage ;; esac
for step in "$@"; do
    case $step in settings | volumes | hosts | mappings) ;; *) usage ;; esac
done

# chosen STEP ARGUMENT...: whether the step is among the arguments, or there are none.
chosen() {
    local step=$1
    shift
    [ $# = 0 ] || case " $* " in *" $step "*) ;; *) return 1 ;; esac
}

[ "$verb" != verify ] || exec ./verify.py "$@"

for program in curl jq; do
    command -v $program >/dev/null || fail "install $program"
done

if [ -n "${EF600_PASSWORD_FILE-}" ]; then
    IFS= read -r password <"$EF600_PASSWORD_FILE" || [ -n "${password-}" ] || fail "$EF600_PASSWORD_FILE is empty"
else
    password=${EF600_PASSWORD-}
    [ -n "$password" ] || { echo "$0: set EF600_PASSWORD_FILE or EF600_PASSWORD" >&2; exit 2; }
fi
# What curl reads as a string between quotes.
password=${password//\\/\\\\}
password=${password//\"/\\\"}

urls=()
if [ -n "${EF600_URL-}" ]; then
    urls=("$EF600_URL")
else
    while IFS= read -r address; do urls+=("https://$address:8443"); done < <(jq -r '.controllers[]' plan.json)
fi
case ${EF600_VALIDATE_CERTS-} in yes | true | 1) certificates=() ;; *) certificates=(--insecure) ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# send METHOD PATH [BODY]: sends a request and prints the answer.
send() {
    local method=$1 path=$2 body=${3-} url answer status code problems=''
    local options=(--silent --show-error --noproxy '*' --request "$method" --connect-timeout 10 --max-time 60)
    options+=(--header 'Accept: application/json' --write-out '\n%{http_code}')
    [ -z "$body" ] || options+=(--header 'Content-Type: application/json' --data-binary "$body")
    for url in "${urls[@]}"; do
        code=0
        answer=$(printf 'user = "admin:%s"\n' "$password" |
            curl --disable --config - ${certificates[0]+"${certificates[@]}"} "${options[@]}" \
                "$url/devmgr/v2/storage-systems/1$path" 2>"$work/error") || code=$?
        if [ $code = 0 ]; then
            status=${answer##*$'\n'}
            echo "$status" >"$work/status"
            answer=${answer%$'\n'*}
            case $status in
                2??) printf '%s\n' "$answer"; return ;;
                401 | 403) fail "$method $url ...$path: $status; is the password right?" ;;
            esac
            fail "$method $url ...$path: $status: $(reason "$answer")"
        fi
        problems+=$'\n'"$(cat "$work/error")"
        # 6, 7, 35, 60: nothing was sent, so the other controller may be asked.
        case $method-$code in
            GET-* | *-6 | *-7 | *-35 | *-60) ;;
            *) fail "$method $url ...$path: no answer; it may have been done: run this again$problems" ;;
        esac
    done
    fail "no controller answers:$problems"
}

# reason ANSWER: what the array says of a request that it has refused.
reason() {
    local text
    text=$(jq -r '.errorMessage // .localizedMessage // empty' <<<"$1" 2>/dev/null) || text=''
    [ -n "$text" ] || text=${1:0:200}
    printf '%s\n' "$text"
}

# known PATH: the name of a file with the answer to a GET. Answers are kept until something is changed.
known() {
    local file="$work/known${1//[^A-Za-z0-9]/_}"
    if [ ! -e "$file" ]; then
        send GET "$1" >"$file.new" || exit 1
        jq -e . "$file.new" >/dev/null 2>&1 || fail "GET ...$1: the answer is no JSON"
        mv "$file.new" "$file"
    fi
    echo "$file"
}

# change METHOD PATH [BODY]
change() {
    send "$@" >/dev/null || exit 1
    rm -f "$work"/known*
}

# note KIND NAME [WHAT]: notes what this has made: the id of an object, or where a volume is mapped. Without it
# an answer is awaited. is_noted KIND NAME, noted KIND NAME (prints it), forget KIND NAME.
note() {
    local serial
    serial=$(array_serial) || exit 1
    mkdir -p $made
    echo "$serial" >$made/array
    without "$1" "$2" >$made/new
    printf '%s\t%s\n' "$2" "${3-}" >>$made/new
    mv -f $made/new "$made/$1"
}

is_noted() {
    awk -F '\t' -v name="$2" '$1 == name { found = 1 } END { exit !found }' "$made/$1" 2>/dev/null
}

noted() {
    awk -F '\t' -v name="$2" '$1 == name { print $2 }' "$made/$1" 2>/dev/null || :
}

without() {
    [ ! -e "$made/$1" ] || awk -F '\t' -v name="$2" '$1 != name' "$made/$1"
}

# names KIND: the names that are noted, in their order.
names() {
    [ ! -e "$made/$1" ] || cut -f 1 "$made/$1"
}

forget() {
    without "$1" "$2" >$made/new
    if [ -s $made/new ]; then mv -f $made/new "$made/$1"; else rm -f $made/new "$made/$1"; fi
    is_all_forgotten
}

# Removes the directory once nothing is noted but the array.
is_all_forgotten() {
    local left
    left=$(cd $made 2>/dev/null && find . -type f ! -name array | head -n 1) || return 0
    [ -n "$left" ] || rm -rf $made
}

# The serial number of the array.
array_serial() {
    local sa
    sa=$(known '/graph/xpath-filter?query=/sa') || exit 1
    jq -er '.[0].saData.chassisSerialNumber | select(. != null and . != "")' "$sa" || fail "the array tells no serial number"
}

# Fails where the notes are of another array.
same_array() {
    local serial
    [ -e $made/array ] || { [ ! -d $made ] || fail "$made has no array: it is not known which one it is of"; return 0; }
    serial=$(array_serial) || exit 1
    [ "$serial" = "$(cat $made/array)" ] ||
        fail "$made is of the array $(cat $made/array), and this is $serial: nothing is changed"
}

# The NVMe-oF interfaces with the letters of their controllers and their places among those of it.
# shellcheck disable=SC2016
readonly INTERFACES='
    ($controllers[0] | sort) as $references
    | [.[] | select(any(.commandProtocolPropertiesList.commandProtocolProperties[];
          .commandProtocol == "nvme" and .nvmeProperties.commandSet == "nvmeof"))]
    | map(.letter = (.controllerRef as $of | $references | index($of) | if . == null then "" else "AB"[.:. + 1] end))
    | group_by(.letter) | map(sort_by(.ioInterfaceTypeData | .[.interfaceType].channel)
        | to_entries | map(.value + {place: (.key + 1)})) | add // []'

# identity KIND NAME: the id of an object, or nothing.
identity() {
    local file controllers
    controllers=$(known '/graph/xpath-filter?query=/controller/id') || exit 1
    case $1 in
        drive) file=$(known /drives) || exit 1 ;;
        pool) file=$(known /storage-pools) || exit 1 ;;
        volume) file=$(known /volumes) || exit 1 ;;
        host) file=$(known /hosts) || exit 1 ;;
        group) file=$(known /host-groups) || exit 1 ;;
        controller) file=$controllers ;;
        interface) file=$(known '/interfaces?channelType=hostside') || exit 1 ;;
        *) fail "$requests has an id of an unknown kind: $1" ;;
    esac
    # The program is jq's, and so are its variables.
    # shellcheck disable=SC2016
    jq -r --arg kind "$1" --arg name "$2" --slurpfile controllers "$controllers" '
        if $kind == "controller" then (sort | .[("AB" | index($name))]) // empty
        elif $kind == "drive" then .[] | select(.physicalLocation.slot == ($name | tonumber) + 1) | .id
        elif $kind == "interface" then
            '"$INTERFACES"' | .[] | select("\(.letter) \(.place)" == $name) | .interfaceRef
        else .[] | select((.name // .label) == $name) | .id end' "$file"
}

# resolved REQUEST: the same with ids in the place of {KIND NAME}.
resolved() {
    local request=$1 word kind name id
    while IFS= read -r word; do
        kind=${word%% *}
        name=${word#* }
        id=$(identity "$kind" "$name") || exit 1
        [ -n "$id" ] || fail "the array has no $kind $name"
        case $id in *$'\n'*) fail "the array has several of $kind $name" ;; esac
        request=${request//"{$word}"/$id}
    done < <(jq -r '[.path, .body] | tostring | [scan("[{]([a-z]+ [^{}\"]+)[}]")[0]] | unique[]' <<<"$request")
    printf '%s\n' "$request"
}

# present REQUEST: the body that would set what is set now, for a request that sets something.
present() {
    local whole sa volumes interfaces
    whole=$(known '') || exit 1
    sa=$(known '/graph/xpath-filter?query=/sa') || exit 1
    volumes=$(known /volumes) || exit 1
    interfaces=$(known '/interfaces?channelType=hostside') || exit 1
    # shellcheck disable=SC2016
    jq -c --slurpfile whole "$whole" --slurpfile sa "$sa" --slurpfile volumes "$volumes" \
        --slurpfile interfaces "$interfaces" '
        $whole[0] as $whole | $sa[0][0] as $sa | (.path | split("/") | last) as $last | .path as $path
        | if $path == "/configuration" then { name: $whole.name }
          elif $last == "setSACacheParams" then
              $sa.cache | { cacheBlkSize, demandFlushAmount, demandFlushThreshold }
          elif $last == "setStorageArrayProperties" then
              { settings: { defaultHostTypeIndex: $sa.defaultHostTypeIndex } }
          elif $last == "setAutoLoadBalancing" then
              { enableAutoLoadBalancing: $whole.autoLoadBalancingEnabled }
          elif $last == "setHostConnectivityReporting" then
              { enableHostConnectivityReporting: $whole.hostConnectivityReportingEnabled }
          elif ($path | startswith("/volumes/")) then
              $volumes[0][] | select(.id == $last) | {
                  cacheSettings: (.cacheSettings | {
                      readCacheEnable, writeCacheEnable, mirrorEnable, cacheWithoutBatteries: .cwob,
                      readAheadEnable: ((.readAheadMultiplier | tonumber) > 0) }),
                  owningControllerId: .preferredManager }
          elif ($path | startswith("/nvmeof/interfaces/")) then
              $interfaces[0][] | select(.interfaceRef == $last) | .ioInterfaceTypeData as $data
              | .commandProtocolPropertiesList.commandProtocolProperties[0].nvmeProperties.nvmeofProperties
              | if .provider == "providerInfiniband" then { settings: { ibSettings: { networkSettings: {
                    ipv4Address: .ibProperties.ipAddressData.ipv4Data.ipv4Address } } } }
                else .roceV2Properties.ipv4Data as $ipv4 | { settings: { roceV2Settings: { networkSettings: {
                    ipv4Enabled: .roceV2Properties.ipv4Enabled,
                    ipv4Settings: { configurationMethod: $ipv4.ipv4AddressConfigMethod,
                        address: $ipv4.ipv4AddressData.ipv4Address, subnetMask: $ipv4.ipv4AddressData.ipv4SubnetMask },
                    interfaceMtu: $data[$data.interfaceType].interfaceData.ethernetData.maximumFramePayloadSize } } } } end
          else error("\($path) sets nothing") end' <<<"$1" || fail "an answer of the array has another form than expected"
}

# differs PRESENT WANTED: whether setting the second would change the first.
differs() {
    # shellcheck disable=SC2016
    ! jq -e --argjson wanted "$2" '. as $now | ($now * $wanted) == $now' <<<"$1" >/dev/null
}

# set_to REQUEST: sets what differs, and keeps what was there before.
set_to() {
    local request path wanted now
    request=$(resolved "$1") || exit 1
    path=$(jq -r .path <<<"$request")
    wanted=$(jq -c .body <<<"$request")
    now=$(present "$request") || exit 1
    [ -n "$now" ] || fail "the array has nothing at $path"
    differs "$now" "$wanted" || return 0
    case $path in
        /volumes/*) ;;
        *)
            if ! is_noted set "$path"; then
                note set "$path"
                # shellcheck disable=SC2016
                jq -cn --arg path "$path" --argjson body "$now" '{ path: $path, body: $body }
                    | walk(if type == "object" then with_entries(select(.value != null)) else . end)' >>$made/before
            fi
            ;;
    esac
    jq -r .what <<<"$request"
    change POST "$path" "$wanted"
}

# tried KIND NAME METHOD PATH BODY: a change after its note, which is forgotten if the array refuses it. The
# note stays if nobody knows: an answer may be lost.
tried() {
    local kind=$1 name=$2
    shift 2
    rm -f "$work/status"
    if ! (change "$@"); then
        case $(cat "$work/status" 2>/dev/null) in 408) ;; 4??) forget "$kind" "$name" ;; esac
        exit 1
    fi
}

# step_of KIND: the step that has it.
step_of() {
    case $1 in pool | volume) echo volumes ;; mapping) echo mappings ;; *) echo hosts ;; esac
}

# is_as_planned KIND ID REQUEST: whether an object is what a resolved request would make.
is_as_planned() {
    local drives volumes pools hosts
    drives=$(known /drives) || exit 1
    volumes=$(known /volumes) || exit 1
    pools=$(known /storage-pools) || exit 1
    hosts=$(known /hosts) || exit 1
    # Capacities are rounded up to whole pieces of a pool.
    # shellcheck disable=SC2016
    jq -e --arg kind "$1" --arg id "$2" --slurpfile drives "$drives" --slurpfile volumes "$volumes" \
        --slurpfile pools "$pools" --slurpfile hosts "$hosts" '.body as $body
        | if $kind == "pool" then
              ($pools[0][] | select(.id == $id)) as $pool | $pool.raidLevel == $body.raidLevel
              and ([$drives[0][] | select(.currentVolumeGroupRef == $pool.volumeGroupRef) | .id] | sort) == ($body.diskDriveIds | sort)
          elif $kind == "volume" then
              $volumes[0][] | select(.id == $id) | ((.capacity | tonumber) - $body.size) as $more
              | .volumeGroupRef == $body.poolId and $more >= 0 and $more <= 8589934592
              and ($body.segSize == null or (.segmentSize | tonumber) == $body.segSize * 1024)
          elif $kind == "host" then
              $hosts[0][] | select(.id == $id) | .hostTypeIndex == $body.hostType.index
              and ([.hostSidePorts[] | [(.address | ascii_downcase), .label]] | sort)
                  == ([$body.ports[] | [(.port | ascii_downcase), .label]] | sort)
          else ([$hosts[0][] | select(.clusterRef == $id) | .id] | sort) == ($body.hosts | sort) end' <<<"$3" >/dev/null
}

# make KIND REQUEST: makes what is not there.
make() {
    local kind=$1 name id request step
    step=$(step_of "$kind")
    name=$(jq -r .body.name <<<"$2")
    id=$(identity "$kind" "$name") || exit 1
    request=$(resolved "$2") || exit 1
    if [ -n "$id" ]; then
        is_noted "$kind" "$name" ||
            fail "there is a $kind $name already, which this has not made; ./verify.py says whether it is as planned"
        case $(noted "$kind" "$name") in
            "$id") ;;
            # The answer of an earlier run was lost.
            '') note "$kind" "$name" "$id" ;;
            *) fail "there is a $kind $name, which is not the one that this has made: ./verify.py $step" ;;
        esac
        is_as_planned "$kind" "$id" "$request" ||
            fail "the $kind $name is not as planned, and this does not change it: ./verify.py $step"
        return
    fi
    jq -r .what <<<"$request"
    note "$kind" "$name"
    tried "$kind" "$name" POST "$(jq -r .path <<<"$request")" "$(jq -c .body <<<"$request")"
    id=$(identity "$kind" "$name") || exit 1
    [ -z "$id" ] || note "$kind" "$name" "$id"
}

# mapping VOLUME: its mappings, each as reference, id of the volume, target and LUN.
mapping() {
    local file
    file=$(known /volumes) || exit 1
    # shellcheck disable=SC2016
    jq -r --arg name "$1" '.[] | select(.name == $name) | .id as $id | .listOfMappings[]
        | "\(.lunMappingRef) \($id) \(.mapRef) \(.lun)"' "$file"
}

map() {
    local name request id target lun found
    name=$(jq -r '.body.mappableObjectId | sub("^[{]volume "; "") | sub("[}]$"; "")' <<<"$1")
    request=$(resolved "$1") || exit 1
    id=$(jq -r .body.mappableObjectId <<<"$request")
    target=$(jq -r .body.targetId <<<"$request")
    lun=$(jq -r .body.lun <<<"$request")
    found=$(mapping "$name") || exit 1
    if [ -n "$found" ]; then
        [ "${found#* }" = "$id $target $lun" ] || fail "$name is mapped already, and not as planned: ./verify.py mappings"
        return
    fi
    jq -r .what <<<"$request"
    note mapping "$name" "$id $target $lun"
    tried mapping "$name" POST /volume-mappings "$(jq -c .body <<<"$request")"
}

# left_mapped STEP...: the mappings of the array that an undo of these steps leaves, each as name of the
# volume, target, LUN; without a step all of them.
left_mapped() {
    local file name reference rest
    file=$(known /volumes) || exit 1
    jq -r '.[] | .name as $name | .id as $id | .listOfMappings[] | "\($name) \($id) \(.mapRef) \(.lun)"' "$file" |
        while read -r name rest; do
            case " $* " in *' mappings '*) [ "$(noted mapping "$name")" != "$rest" ] || continue ;; esac
            echo "$name ${rest#* }"
        done
}

# ports_stay_put CHANGES: fails if one of the requests changes a host port, unless that is wanted. Each
# is a path and the body to set.
ports_stay_put() {
    local one now wanted
    [ "${CHANGE_PORT_ADDRESSES-}" != yes ] || return 0
    while IFS= read -r -u 4 one; do
        case $(jq -r .path <<<"$one") in /nvmeof/interfaces/*) ;; *) continue ;; esac
        one=$(resolved "$one") || exit 1
        now=$(present "$one") || exit 1
        wanted=$(jq -c .body <<<"$one")
        ! differs "${now:-null}" "$wanted" || fail "volumes are mapped, and this would change the address of a host port: hosts lose" \
            "their paths through it. Disconnect them first, and say so: CHANGE_PORT_ADDRESSES=yes"
    done 4<<<"$1"
}

# Waits until the array formats none of the volumes: as soon as one is mapped, the rest of it is
# formatted online, which takes many times as long.
wait_formatted() {
    local deadline=$((SECONDS + ${WAIT_S:-21600})) idle=0 ids running
    ids=$(known /volumes) || exit 1
    # shellcheck disable=SC2016
    ids=$(jq -c --slurpfile plan plan.json '[$plan[0].mappings | keys[]] as $names
        | [.[] | select(.name as $name | $names | index($name)) | .id]' "$ids")
    while [ $idle -lt 2 ]; do
        running=$(send GET /symbol/getLongLivedOpsProgress) || exit 1
        # shellcheck disable=SC2016
        running=$(jq -r --argjson ids "$ids" '[.longLivedOpsProgress[] | .. | strings]
            | map(select(. as $text | $ids | index($text))) | length' <<<"$running") ||
            fail "what is being formatted is not known"
        if [ "$running" != 0 ]; then
            idle=0
            [ $SECONDS -lt $deadline ] || fail "volumes are still being formatted"
            echo "volumes are being formatted"
            sleep 30
        else
            idle=$((idle + 1))
            [ $idle -ge 2 ] || sleep "${CONFIRM_S:-15}"
        fi
    done
}

do_step() {
    local request
    [ "$1" != mappings ] || wait_formatted
    while IFS= read -r -u 3 request; do
        case $(jq -r .path <<<"$request") in
            /storage-pools) make pool "$request" ;;
            /volumes) make volume "$request" ;;
            /hosts) make host "$request" ;;
            /host-groups) make group "$request" ;;
            /volume-mappings) map "$request" ;;
            *) set_to "$request" ;;
        esac
    done 3< <(jq -c --arg step "$1" '.requests[] | select(.step == $step)' $requests)
    not_planned "$1"
}

# not_planned STEP: fails if an earlier plan has made something that this one does not have.
not_planned() {
    local kind name planned
    planned=$(jq -r '.requests[].body | if .mappableObjectId then "mapping " + (.mappableObjectId | sub("^[{]volume "; "")
        | sub("[}]$"; "")) else .name // empty end' $requests)
    for kind in pool volume host group mapping; do
        [ "$(step_of $kind)" = "$1" ] || continue
        while IFS= read -r -u 4 name; do
            [ $kind != mapping ] || name="mapping $name"
            grep -qxF -- "$name" <<<"$planned" || fail "the $kind ${name#mapping } is of an earlier plan, and stays: ./verify.py $1"
        done 4< <(names $kind)
    done
}

# remove KIND PATH: deletes what this has made of a kind.
remove() {
    local name id
    while IFS= read -r -u 3 name; do
        id=$(identity "$1" "$name") || exit 1
        if [ -n "$id" ] && [ "$id" = "$(noted "$1" "$name")" ]; then
            echo "delete the $1 $name"
            change DELETE "$2/$id"
        elif [ -n "$id" ]; then
            echo "the $1 $name is not the one that this has made: it stays" >&2
        fi
        forget "$1" "$name"
    done 3< <(names "$1")
}

# consents STEP...: fails, before anything is changed, unless all that these steps need is given.
consents() {
    local left kind name id file
    same_array
    left=$(left_mapped "$@") || exit 1
    for kind in pool volume group host; do
        case " $* " in *" $(step_of $kind) "*) ;; *) continue ;; esac
        while IFS= read -r -u 3 name; do
            id=$(identity $kind "$name") || exit 1
            [ -z "$id" ] || [ -n "$(noted $kind "$name")" ] ||
                fail "whether this has made the $kind $name is not known: the answer was lost. ./rest.sh do $(step_of $kind) takes" \
                    "it as made; otherwise take it out of $made/$kind"
            case $kind in
                volume) ! grep -F -- "$name " <<<"$left" | grep "^$name " >/dev/null || fail "$name is mapped: ./rest.sh undo mappings" ;;
                group | host)
                    [ -z "$id" ] || ! awk -v id="$id" '$2 == id { found = 1 } END { exit !found }' <<<"$left" ||
                        fail "volumes are mapped to the $kind $name: ./rest.sh undo mappings"
                    ;;
            esac
        done 3< <(names $kind)
    done
    case " $* " in *' mappings '*)
        [ ! -e $made/mapping ] || [ "${HOSTS_DISCONNECTED-}" = yes ] ||
            fail "this takes the volumes away from every host: unmount and disconnect on all of them, and say so:" \
                "HOSTS_DISCONNECTED=yes"
        ;;
    esac
    case " $* " in *' volumes '*)
        [ ! -e $made/volume ] && [ ! -e $made/pool ] || [ "${DELETE_DATA-}" = yes ] ||
            fail "this deletes the volumes with their data: DELETE_DATA=yes ./rest.sh undo volumes"
        ;;
    esac
    case " $* " in *' settings '*)
        file=$made/before
        [ ! -e $file ] || [ -z "$left" ] || ports_stay_put "$(cat $file)"
        ;;
    esac
}

undo_step() {
    local name reference rest one
    case $1 in
        settings)
            while IFS= read -r -u 3 one; do
                change POST "$(jq -r .path <<<"$one")" "$(jq -c .body <<<"$one")"
            done 3< <(tac $made/before 2>/dev/null)
            rm -f $made/before $made/set
            is_all_forgotten
            ;;
        volumes)
            remove volume /volumes
            remove pool /storage-pools
            ;;
        hosts)
            remove group /host-groups
            remove host /hosts
            ;;
        mappings)
            while IFS= read -r -u 3 name; do
                one=$(mapping "$name") || exit 1
                while read -r reference rest; do
                    if [ -n "$reference" ] && [ "$rest" = "$(noted mapping "$name")" ]; then
                        echo "unmap $name"
                        change DELETE "/volume-mappings/$reference"
                    fi
                done <<<"$one"
                forget mapping "$name"
            done 3< <(names mapping)
            ;;
    esac
}

steps=()
for step in settings volumes hosts mappings; do
    if chosen $step "$@"; then steps+=("$step"); fi
done

if [ "$verb" = "do" ]; then
    same_array
    left=$(left_mapped) || exit 1
    if [ -n "$left" ] && chosen settings "$@"; then
        ports_stay_put "$(jq -c '.requests[] | select(.step == "settings")' $requests)"
    fi
    for step in "${steps[@]}"; do do_step "$step"; done
else
    consents "${steps[@]}"
    for ((at = ${#steps[@]} - 1; at >= 0; at--)); do undo_step "${steps[at]}"; done
fi
