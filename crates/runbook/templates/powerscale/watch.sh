#!/bin/sh
# Shows what each node serves while clients work: all nodes with a multipath route, one without.
set -eu
isi nfs settings global view
isi statistics system -n=all --format top
isi statistics protocol list --protocols=nfs3,nfs4,nfsrdma --classes=read,write --sort=Ops --output=Node,Proto,Class,Ops
