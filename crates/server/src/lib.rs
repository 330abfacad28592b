//! NFS server: listeners, loops, dispatch, exports, group, statistics.
