#!/bin/bash
# Creates the cluster {{ scale.cluster }}. Root of this node reaches every node by ssh.
#
# SCALE_ACCEPT_LICENSE=yes says that you accept the licence.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

PATH=$PATH:/usr/lpp/mmfs/bin

case ${1-} in
    do)
        need_root
        [ "${SCALE_ACCEPT_LICENSE-}" = yes ] || fail "set SCALE_ACCEPT_LICENSE=yes to accept the licence"
        mmcrcluster -C {{ scale.cluster }} -N files/nodes -r /usr/bin/ssh -R /usr/bin/scp
        mmchlicense server --accept -N {{ managers }}
{%- if !clients.is_empty() %}
        mmchlicense client --accept -N {{ clients }}
{%- endif %}
        # Nothing of the NSD server is set: no node serves disks to others.
        mmchconfig autoload=yes,maxblocksize=16M,pagepool={{ scale.pagepool_gib }}G,workerThreads=512,maxMBpS=20000,ignorePrefetchLUNCount=yes
{%- if let Some(ports) = scale.verbs_ports %}
        mmchconfig verbsRdma=enable,verbsPorts="{{ ports }}"
{%- endif %}
        mmstartup -a
        ;;
    verify)
        mmlscluster
        mmgetstate -a
        if mmgetstate -a -Y | grep -v HEADER | grep -v ':active:' >/dev/null; then fail "not every node is active"; fi
        ;;
    undo)
        need_root
        # Nodes of a cluster that has disks are the only way to their data.
        disks=$(mmlsnsd -Y 2>/dev/null | grep -v HEADER || :)
        [ -z "$disks" ] || fail "the cluster has NSDs: undo the steps after this one first"
        mmshutdown -a
        mmdelnode -a
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
