#!/bin/sh
# nfs-ganesha as a peer of `cargo xtask bench`: serves $EXPORT, a tmpfs in a mount namespace of its own, by NFS version 3 on
# port $PORT of 127.0.0.1, and MOUNT on $MOUNT_PORT. Needs root, nfs-ganesha, nfs-ganesha-vfs and rpcbind.
set -eu
if [ "${1-}" != within ]; then
    rpcbind=
    if ! rpcinfo -p 127.0.0.1 >/dev/null 2>&1; then
        # nfs-ganesha ends without one. What was started here ends with this script.
        rpcbind -f &
        rpcbind=$!
        for _ in $(seq 100); do
            rpcinfo -p 127.0.0.1 >/dev/null 2>&1 && break
            sleep 0.1
        done
    fi
    trap '[ -z "$rpcbind" ] || kill "$rpcbind" 2>/dev/null || true' EXIT
    unshare --mount --propagation private "$0" within &
    server=$!
    trap 'kill "$server" 2>/dev/null || true' INT TERM
    wait "$server"
    exit
fi
here=$(pwd)
plugins=$(dirname "$(ls /usr/lib/*/ganesha/libfsalvfs.so | head -n 1)")
mount -t tmpfs -o size=5G,mode=777 none "$EXPORT"
cat >"$here/ganesha.conf" <<CONF
NFS_CORE_PARAM { NFS_Port = $PORT; MNT_Port = $MOUNT_PORT; Protocols = 3; Enable_NLM = false;
  Enable_RQUOTA = false; Enable_UDP = None; Bind_addr = 127.0.0.1; Plugins_Dir = "$plugins"; }
NFSv4 { Graceless = true; }
EXPORT { Export_Id = 1; Path = $EXPORT; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Protocols = 3; Transports = TCP; PrivilegedPort = false; FSAL { Name = VFS; } }
LOG { Default_Log_Level = WARN; }
CONF
exec ganesha.nfsd -F -f "$here/ganesha.conf" -L "$here/ganesha.log" -p "$here/ganesha.pid"
