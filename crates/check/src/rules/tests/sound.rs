//! The captures of a host with which nothing is wrong, and what is expected of it.

use crate::Expected;

/// The captures of a sound host.
pub(super) const SOUND: &[(&str, &str)] = &[
    ("kernel-release.txt", "6.8.0-48-generic\n"),
    (
        "sys-infiniband.txt",
        "/sys/class/infiniband/mlx5_0/fw_ver:16.35.4030\n\
         /sys/class/infiniband/mlx5_0/device/numa_node:1\n\
         /sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE\n\
         /sys/class/infiniband/mlx5_0/node_type:1: CA\n\
         /sys/class/infiniband/mlx5_0/ports/1/link_layer:Ethernet\n\
         /sys/class/infiniband/mlx5_0/ports/1/gids/0:fe80:0000:0000:0000:0ac0:ebff:fe00:0001\n\
         /sys/class/infiniband/mlx5_0/ports/1/gids/1:0000:0000:0000:0000:0000:ffff:0a00:0001\n\
         /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0:RoCE v2\n\
         /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1:RoCE v2\n\
         /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0:ens6f0\n",
    ),
    (
        "ibv_devinfo.txt",
        "hca_id:\tmlx5_0\n\tfw_ver:\t16.35.4030\n\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n\
         \t\t\tmax_mtu:\t4096 (5)\n\t\t\tactive_mtu:\t4096 (5)\n\t\t\tlink_layer:\tEthernet\n",
    ),
    ("rdma-link.txt", "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens6f0\n"),
    (
        "sys-net.txt",
        "/sys/class/net/lo/mtu:65536\n/sys/class/net/ens6f0/mtu:9000\n/sys/class/net/ens6f1/mtu:9000\n\
         /sys/class/net/ens6f0/speed:25000\n/sys/class/net/ens6f0/device/numa_node:1\n",
    ),
    (
        "ip-addr.txt",
        "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n\
         2: ens6f0    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens6f0\\       valid_lft forever\n\
         2: ens6f0    inet6 fe80::1/64 scope link \\       valid_lft forever\n\
         3: ens6f1@if9    inet 10.0.0.2/24 scope global ens6f1\\       valid_lft forever\n\
         2: ens6f0    inet6 fd00::1/64 scope global \\       valid_lft forever\n\
         3: ens6f1    inet6 fd00::2/64 scope global \\       valid_lft forever\n",
    ),
    (
        "ip-rule.txt",
        "0:\tfrom all lookup local\n9:\tfrom 10.0.0.2 lookup 101\n32766:\tfrom all lookup main\n",
    ),
    (
        "ip-route.txt",
        "default via 10.1.0.1 dev eth0\n10.0.0.0/24 dev ens6f1 proto kernel scope link src 10.0.0.2 metric 101\n\
         10.0.0.0/24 dev ens6f0 proto kernel scope link src 10.0.0.1 metric 100\n",
    ),
    (
        "ip-route6.txt",
        "fd00::/64 dev ens6f0 proto kernel metric 256\nfd00::/64 dev ens6f1 proto kernel metric 256\n",
    ),
    (
        "ip-rule6.txt",
        "0:\tfrom all lookup local\n9:\tfrom fd00:0:0::2/128 lookup 101\n32766:\tfrom all lookup main\n",
    ),
    (
        "sysctl.txt",
        "/proc/sys/net/ipv4/conf/all/rp_filter:0\n/proc/sys/net/ipv4/conf/ens6f0/rp_filter:2\n\
         /proc/sys/net/ipv4/conf/ens6f1/rp_filter:2\n/proc/sys/net/ipv4/conf/ens6f0/arp_ignore:1\n\
         /proc/sys/net/ipv4/conf/ens6f1/arp_ignore:1\n/proc/sys/net/ipv4/conf/ens6f0/arp_announce:2\n\
         /proc/sys/net/ipv4/conf/ens6f1/arp_announce:2\n/proc/sys/net/ipv4/tcp_congestion_control:cubic\n\
         /proc/sys/net/ipv4/tcp_rmem:4096\t131072\t6291456\n/proc/sys/net/ipv4/tcp_wmem:4096 16384 4194304\n",
    ),
    ("sys-module.txt", "ib_uverbs\nrdma_ucm\nnvme_core\nnvme_fabrics\nnvme_rdma\ndm_mod\n"),
    (
        "limits.txt",
        "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  unlimited unlimited bytes\nMax open files  65536  65536  files\n",
    ),
    ("status.txt", "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-15\n"),
    ("numa.txt", "/sys/devices/system/node/node0/cpulist:0-7\n/sys/devices/system/node/node1/cpulist:8-15\n"),
    (
        "mountstats.txt",
        "device 10.0.0.9:/a mounted on /mnt/a with fstype nfs statvers=1.1\n\
         \topts:\trw,vers=3,rsize=1048576,wsize=1048576,proto=tcp,nconnect=2\n\
         \txprt:\ttcp 876 1 1 0 0 1000 1000 0 1 0 2 0 0\n\txprt:\ttcp 877 1 1 0 0 900 900 0 1 0 2 0 0\n",
    ),
    (
        "sys-nvme.txt",
        "/sys/module/nvme_core/parameters/multipath:Y\n\
         /sys/class/nvme-subsystem/nvme-subsys0/subsysnqn:nqn.1992-08.com.netapp:6000\n\
         /sys/class/nvme-subsystem/nvme-subsys0/iopolicy:round-robin\n\
         /sys/class/nvme/nvme0/transport:rdma\n/sys/class/nvme/nvme0/state:live\n\
         /sys/class/nvme/nvme0/address:traddr=10.0.0.7,trsvcid=4420\n\
         /sys/class/nvme/nvme0/subsysnqn:nqn.1992-08.com.netapp:6000\n/sys/class/nvme/nvme0/hostnqn:nqn.2020-12.org:h\n\
         /sys/class/nvme/nvme1/transport:rdma\n/sys/class/nvme/nvme1/state:live\n\
         /sys/class/nvme/nvme1/hostnqn:nqn.2020-12.org:h\n/sys/class/nvme/nvme9/transport:pcie\n\
         /sys/class/nvme/nvme0/nvme0c0n1/ana_state:optimized\n\
         /sys/class/nvme/nvme1/nvme0c1n1/ana_state:non-optimized\n\
         /sys/class/nvme/nvme0/nvme0c0n1/nsid:1\n/sys/class/nvme/nvme1/nvme0c1n1/nsid:1\n",
    ),
    ("nvme-hostnqn.txt", "nqn.2020-12.org:h\n"),
    (
        "nvme-list.txt",
        "Node\tSN\tModel\tNamespace\tUsage\tFormat\tFW Rev\n\
         /dev/nvme0n1\t0219\tNetApp E-Series\t1\t1 TB / 1 TB\t4 KiB + 0 B\t98711200\n\
         /dev/nvme0n2\t0219\tNetApp E-Series\t2\t1 TB / 1 TB\t4 KiB + 0 B\t98711200\n",
    ),
    (
        "nvme-list-subsys.txt",
        "nvme-subsys0 - NQN=nqn.1992-08.com.netapp:6000\n\\\n +- nvme0 rdma traddr=10.0.0.7 trsvcid=4420 live\n \
         +- nvme1 rdma traddr=10.0.0.8 trsvcid=4420 live\n",
    ),
    (
        "nvme-netapp-smdevices.txt",
        "/dev/nvme0n1, Array Name e, Volume Name v1, NSID 1, Volume ID 1, Controller A, Access State unknown, 1TB\n\
         /dev/nvme0n2, Array Name e, Volume Name v2, NSID 2, Volume ID 2, Controller B, Access State unknown, 1TB\n",
    ),
    (
        "multipath.txt",
        "eui.1 [nvme]:nvme0n1 NVMe,NetApp E-Series,98711200\nsize=1 features='n/a' hwhandler='ANA' wp=rw\n\
         |-+- policy='n/a' prio=50 status=optimized\n| `- 0:0:1 nvme0c0n1 0:0 n/a optimized live\n\
         `-+- policy='n/a' prio=10 status=non-optimized\n  `- 0:1:1 nvme0c1n1 0:0 n/a non-optimized live\n",
    ),
    (
        "sys-block.txt",
        "/sys/block/nvme0n1/queue/max_sectors_kb:1024\n/sys/block/nvme0n1/queue/max_hw_sectors_kb:2048\n\
         /sys/block/nvme0n1/queue/optimal_io_size:1048576\n/sys/block/loop0/queue/max_sectors_kb:1\n\
         /sys/block/loop0/queue/optimal_io_size:4096\n/sys/block/sda/queue/max_sectors_kb:124\n",
    ),
    ("timedatectl.txt", "       Time zone: UTC (UTC, +0000)\nSystem clock synchronized: yes\n"),
    (
        "isi-network-interfaces.txt",
        "        IP Addresses: 10.0.0.98\n                 LNN: 1\n                Name: 25gige-2\n\
         \x20             Owners: groupnet0.a.b\n              Status: Up\n                 MTU: 9000\n\
         \x20              Flags: ACCEPT_ROUTER_ADVERT, SUPPORTS_RDMA_RRoCE\n    Negotiated Speed: 25Gbps\n",
    ),
    ("passwd.txt", "root:x:0:0:root:/root:/bin/bash\nbench:x:2010:2010::/home/bench:/bin/sh\n"),
    (
        "isi-network-pools.txt",
        "       ID: groupnet0.a.b\n     Name: b\n  Access Zone: System\n       Ifaces: 1:25gige-2\n    IP Ranges: \
         10.0.0.98-10.0.0.98\n",
    ),
    (
        "isi-nfs-exports.txt",
        "      ID: 3\n   Zone: System\n   Paths: /ifs/data\n   Clients: 10.0.0.1, 10.0.0.2\n  Read Only Clients: -\n",
    ),
    (
        "isi-nfs-settings.txt",
        "NFS Service Enabled: Yes\n NFSv3 Enabled: Yes\n NFSv3 RDMA Enabled: Yes\n NFSv4 Enabled: Yes\n v4.1 Enabled: Yes\n",
    ),
    (
        "isi-statistics-protocol.txt",
        "Ops Node Proto Class\n10k 1 nfsrdma read\n9k 2 nfsrdma read\nTotal: 2\n",
    ),
    (
        "isi-statistics-system.txt",
        "Node CPU NFS Total\nAll 9% 14.6G 14.6G\n1 9% 4.1G 4.1G\n2 9% 5.0G 5.0G\n3 9% 5.5G 5.5G\n",
    ),
];

pub(super) const EXPECTED: Expected = Expected {
    paths: Some(2),
    portals: Vec::new(),
    addresses: Vec::new(),
    host_nqn: None,
    native_multipath: None,
    mtu: Some(9000),
    interfaces: Vec::new(),
    stripe_bytes: None,
    volumes: Vec::new(),
    cluster: None,
};
