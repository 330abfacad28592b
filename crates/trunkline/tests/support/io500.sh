#!/bin/sh
get() { sed -n "s/^$1 = //p" "$2"; }
data=$(get datadir "$1"); results=$(get resultdir "$1"); seconds=$(get stonewall-time "$1")
invalid=; if [ -n "$seconds" ]; then invalid=" [INVALID]"; fi
seconds=${seconds:-300}
mkdir "$data/ior-easy" || exit 1
echo data > "$data/ior-easy/file" || exit 1
case $(get verbosity "$1") in
  9) echo "IOR: No space left on device" >&2; exit 28;;
  8) sleep 1000;;
  7) case $data in */tcp-mp/*) sleep 1000;; esac;;
esac
{
  echo "IO500 version 02091cf (standard)"
  result() { printf '[RESULT] %20s %15s %s : time %s seconds%s\n' "$@"; }
  result ior-easy-write 1.500000 GiB/s $seconds.100 "$invalid"
  result mdtest-easy-write 2.000000 kIOPS $seconds.200 "$invalid"
  echo '[      ]            timestamp        0.000000 kIOPS : time 0.000 seconds'
  result ior-hard-write 0.500000 GiB/s $seconds.300 "$invalid"
  result mdtest-hard-write 4.000000 kIOPS $seconds.400 "$invalid"
  result find 100.000000 kIOPS 0.005 ""
  result ior-easy-read 3.000000 GiB/s 0.170 ""
  result mdtest-easy-stat 200.000000 kIOPS 1.015 ""
  result ior-hard-read 1.000000 GiB/s 0.051 ""
  result mdtest-hard-stat 50.000000 kIOPS 1.021 ""
  result mdtest-easy-delete 30.000000 kIOPS 1.067 ""
  result mdtest-hard-read 40.000000 kIOPS 1.053 ""
  result mdtest-hard-delete 2.000000 kIOPS 1.967 ""
  echo '[      ]  ior-rnd4K-easy-read        0.666174 GiB/s : time 2.007 seconds'
  printf '[SCORE ] Bandwidth 1.224745 GiB/s : IOPS 19.293573 kiops : TOTAL 4.861039%s\n' "$invalid"
} | tee "$results/result_summary.txt"
rm -r "$data/ior-easy"
