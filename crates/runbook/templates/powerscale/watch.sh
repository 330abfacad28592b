#!/bin/sh
# Shows what each node serves while clients work: all nodes with a multipath route, one without.
set -eu
isi nfs settings global view
isi statistics protocol list --protocols=nfs3,nfs4,nfsrdma --classes=read,write --sort=Ops --output=Node,Proto,Class,Ops
# This one is written anew until you end it by Ctrl-C. `isi statistics system -n=all` prints it once.
isi statistics system -n=all --format top
