#!/usr/bin/env python3
"""Compares the array with plan.json, prints what differs, and fails if anything does.

    ./verify.py [settings] [volumes] [hosts] [mappings]     all four without an argument

It only reads, over the REST interface of the controllers (SANtricity Web Services). The password of
the user admin is read from the file that EF600_PASSWORD_FILE names, or from EF600_PASSWORD.
EF600_VALIDATE_CERTS=yes refuses a certificate that nobody signed. EF600_URL is another address
instead of the controllers'.
"""

import base64
import json
import os
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 60
# Arrays round the capacity of a volume up to whole pieces of a pool.
CAPACITY_SLACK = 8 << 30


def fail(text, status=1):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
    sys.exit(status)


class Array:
    """The REST interface of an array; answers are kept, as several parts read the same."""

    def __init__(self, addresses):
        url = os.environ.get("EF600_URL")
        self.urls = [url] if url else [f"https://{address}:8443" for address in addresses]
        login = base64.b64encode(f"admin:{password()}".encode()).decode()
        self.headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
        self.context = ssl.create_default_context()
        if os.environ.get("EF600_VALIDATE_CERTS") not in ("yes", "true", "1"):
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        # The array is asked itself, whatever proxy the environment names.
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context)
        )
        self.answers = {}

    def get(self, path):
        if path not in self.answers:
            self.answers[path] = self.ask(path)
        return self.answers[path]

    def ask(self, path):
        problems = []
        for url in self.urls:
            whole = f"{url}/devmgr/v2/storage-systems/1{path}"
            request = urllib.request.Request(whole, headers=self.headers)
            try:
                with self.opener.open(request, timeout=TIMEOUT_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                fail(f"{whole}: {error.code} {error.reason}; is the password right?")
            except (OSError, ValueError) as error:
                problems.append(f"{whole}: {error}")
        return fail("no controller answers:\n" + "\n".join(problems))

    def controllers(self):
        """The references of the controllers A and B."""
        found = sorted(self.get("/graph/xpath-filter?query=/controller/id"))
        return dict(zip("AB", found))


def password():
    path = os.environ.get("EF600_PASSWORD_FILE")
    if path:
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\n")
    if not os.environ.get("EF600_PASSWORD"):
        fail("set EF600_PASSWORD_FILE or EF600_PASSWORD", 2)
    return os.environ["EF600_PASSWORD"]


def compare(what, found, planned):
    """What differs between two dictionaries of the same thing."""
    for key, value in planned.items():
        if found.get(key) != value:
            yield f"{what}: {key} is {found.get(key)}, and {value} is planned"


def names(what, found, planned):
    """What is missing, and what is there beside the plan."""
    for name in sorted(set(planned) - set(found)):
        yield f"{what} {name} is missing"
    for name in sorted(set(found) - set(planned)):
        yield f"{what} {name} is there, and not planned"


def settings(array, plan):
    whole = array.get("")
    sa = array.get("/graph/xpath-filter?query=/sa")[0]
    found = {
        "name": whole["name"],
        "automatic load balancing": whole["autoLoadBalancingEnabled"],
        "host connectivity reporting": whole["hostConnectivityReportingEnabled"],
        "cache block size": sa["cache"]["cacheBlkSize"],
        "cache flush threshold": sa["cache"]["demandFlushThreshold"],
        "default host type": sa["defaultHostTypeIndex"],
        "media scan period in days": whole["mediaScanPeriod"],
    }
    yield from compare("array", found, plan["settings"])
    ports = host_ports(array)
    for port in plan["ports"]:
        what = f"port {port['label']} of controller {port['controller']}"
        found = ports.get((port["controller"], port["channel"]))
        if found is None:
            yield f"{what} is missing"
        else:
            yield from compare(what, found, port["network"])


def host_ports(array):
    """The network of each NVMe-oF port, by controller and by its place among that controller's ports."""
    letters = {reference: letter for letter, reference in array.controllers().items()}
    found = {}
    for interface in array.get("/interfaces?channelType=hostside"):
        properties = interface["commandProtocolPropertiesList"]["commandProtocolProperties"]
        if not properties or properties[0]["commandProtocol"] != "nvme":
            continue
        if properties[0]["nvmeProperties"]["commandSet"] != "nvmeof":
            continue
        data = interface["ioInterfaceTypeData"]
        channel = data[data["interfaceType"]]["channel"]
        fabric = network(properties[0]["nvmeProperties"]["nvmeofProperties"], data)
        found.setdefault(letters.get(interface["controllerRef"]), []).append((channel, fabric))
    by_place = {}
    for letter, ports in found.items():
        for place, (_, fabric) in enumerate(sorted(ports, key=lambda port: port[0]), 1):
            by_place[letter, place] = fabric
    return by_place


def network(properties, data):
    if properties["provider"] == "providerInfiniband":
        return {"address": properties["ibProperties"]["ipAddressData"]["ipv4Data"]["ipv4Address"]}
    ipv4 = properties["roceV2Properties"]["ipv4Data"]
    return {
        "address": ipv4["ipv4AddressData"]["ipv4Address"],
        "netmask": ipv4["ipv4AddressData"]["ipv4SubnetMask"],
        "method": ipv4["ipv4AddressConfigMethod"],
        "mtu": data[data["interfaceType"]]["interfaceData"]["ethernetData"]["maximumFramePayloadSize"],
    }


def volumes(array, plan):
    pools = {pool["name"]: pool for pool in array.get("/storage-pools")}
    letters = {reference: letter for letter, reference in array.controllers().items()}
    for planned in plan["pools"]:
        pool = pools.get(planned["name"])
        if pool is None:
            yield f"pool {planned['name']} is missing"
            continue
        yield from compare(f"pool {planned['name']}", {"level": pool["raidLevel"]}, {"level": planned["level"]})
        drives = [
            drive["physicalLocation"]["slot"] - 1
            for drive in array.get("/drives")
            if drive["currentVolumeGroupRef"] == pool["volumeGroupRef"]
        ]
        if sorted(drives) != sorted(planned["slots"]):
            yield f"pool {planned['name']}: drives are in slots {sorted(drives)}, and {sorted(planned['slots'])} are planned"
        found = {v["name"]: v for v in array.get("/volumes") if v["volumeGroupRef"] == pool["volumeGroupRef"]}
        wanted = {volume["name"]: volume for volume in planned["volumes"]}
        yield from names("volume", found, wanted)
        for name in sorted(set(found) & set(wanted)):
            yield from volume_differs(found[name], wanted[name], letters)


def volume_differs(found, wanted, letters):
    cache = found["cacheSettings"]
    has = {
        "owner": letters.get(found["preferredManager"]),
        "read cache": cache["readCacheEnable"],
        "write cache": cache["writeCacheEnable"],
        "write cache mirroring": cache["mirrorEnable"],
        "write cache without batteries": cache["cwob"],
        "read ahead": int(cache["readAheadMultiplier"]) > 0,
        "cache flush": cache["cacheFlushModifier"],
        "media scan": found["mediaScan"]["enable"],
        "redundancy check": found["mediaScan"]["parityValidationEnable"],
        "segment KiB": int(found["segmentSize"]) >> 10,
    }
    yield from compare(f"volume {wanted['name']}", has, wanted["properties"])
    capacity = int(found["capacity"])
    if not 0 <= capacity - wanted["bytes"] <= CAPACITY_SLACK:
        yield f"volume {wanted['name']}: capacity is {capacity}, and {wanted['bytes']} is planned"


def hosts(array, plan):
    group = host_group(array, plan)
    if group is None:
        yield f"host group {plan['host_group']} is missing"
        return
    everywhere = {host["label"]: host for host in array.get("/hosts")}
    found = {name: host for name, host in everywhere.items() if host["clusterRef"] == group}
    wanted = {host["name"]: host for host in plan["hosts"]}
    yield from names(f"in host group {plan['host_group']}: host", found, wanted)
    for name in sorted(set(everywhere) & set(wanted)):
        host, planned = everywhere[name], wanted[name]
        yield from compare(f"host {name}", {"type": host["hostTypeIndex"]}, {"type": planned["type"]})
        ports = {port["address"].lower(): port["label"] for port in host["hostSidePorts"]}
        planned_ports = {planned["nqn"].lower(): planned["label"]}
        yield from names(f"host {name}: initiator", ports, planned_ports)
        yield from compare(f"host {name}", {k: v for k, v in ports.items() if k in planned_ports}, {
            k: v for k, v in planned_ports.items() if k in ports
        })


def host_group(array, plan):
    for group in array.get("/host-groups"):
        if group["name"] == plan["host_group"]:
            return group["clusterRef"]
    return None


def mappings(array, plan):
    group = host_group(array, plan)
    members = {host["hostRef"] for host in array.get("/hosts") if host["clusterRef"] == group}
    found = {}
    for volume in array.get("/volumes"):
        for mapping in volume["listOfMappings"]:
            if mapping["mapRef"] == group:
                found[volume["name"]] = mapping["lun"]
            elif volume["name"] in plan["mappings"]:
                yield f"volume {volume['name']} is mapped to another target than {plan['host_group']} too"
            elif mapping["mapRef"] in members:
                yield f"volume {volume['name']} is mapped to a host of {plan['host_group']}, and not planned"
    yield from names("the mapping of volume", found, plan["mappings"])
    for name in sorted(set(found) & set(plan["mappings"])):
        yield from compare(f"the mapping of volume {name}", {"LUN": found[name]}, {"LUN": plan["mappings"][name]})


PARTS = {"settings": settings, "volumes": volumes, "hosts": hosts, "mappings": mappings}


def main():
    chosen = sys.argv[1:] or list(PARTS)
    if not set(chosen) <= set(PARTS):
        fail(f"usage: {sys.argv[0]} [{'] ['.join(PARTS)}]", 2)
    with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    array = Array(plan["controllers"])
    try:
        found = [line for part in chosen for line in PARTS[part](array, plan)]
    except (KeyError, IndexError, TypeError) as error:
        fail(f"an answer of the array has another form than expected: {error!r}")
    if found:
        fail("this differs from the plan:\n" + "\n".join(found))
    print(f"{', '.join(chosen)}: as planned")


main()
