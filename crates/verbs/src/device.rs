//! What RDMA hardware is here.

use crate::Error;
use crate::abi::{self, Context, LINK_LAYER_ETHERNET, PORT_ACTIVE, PortAttr};
use crate::library::{Library, library};
use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name: `mlx5_0`, `rxe1`.
    pub name: String,
    /// The NUMA node that it is near, where it is near one.
    pub numa_node: Option<u32>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// From 1 on.
    pub number: u8,
    /// Whether it carries anything.
    pub active: bool,
    /// Whether it is Ethernet, and RDMA over it RoCE.
    pub ethernet: bool,
    /// The most payload of a packet, in bytes.
    pub mtu_bytes: u32,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// An entry of a port's table of addresses (GID).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Its place in the table.
    pub index: u32,
    /// The address; an IPv4 address is told as such.
    pub address: IpAddr,
    /// Whether it speaks RoCE version 2, which is routed.
    pub roce_v2: bool,
}

/// All devices that this process may open.
///
/// # Errors
/// Libraries that are missing, or a kernel that knows no RDMA.
pub fn devices() -> Result<Vec<Device>, Error> {
    let library = library()?;
    let mut count = 0;
    // SAFETY: the count outlives the call.
    let list = unsafe { (library.ibv_get_device_list)(&mut count) };
    if list.is_null() {
        return Err(Error::NoDevice);
    }
    let found = (0..usize::try_from(count).unwrap_or(0)).filter_map(|at| {
        // SAFETY: the list has so many entries, valid until it is freed.
        let device = unsafe { *list.add(at) };
        describe(library, device)
    });
    let found = found.collect();
    // SAFETY: the list came from the library, and nothing of it is used any more.
    unsafe { (library.ibv_free_device_list)(list) };
    Ok(found)
}

/// None for a device that cannot be opened: gone, or not ours to use.
fn describe(library: &Library, device: *mut abi::Device) -> Option<Device> {
    // SAFETY: the device is from a list that is not freed yet, and its name ends with a zero.
    let name = unsafe { CStr::from_ptr((&raw const (*device).name).cast()) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    let context = unsafe { (library.ibv_open_device)(device) };
    if context.is_null() {
        return None;
    }
    let place = Path::new("/sys/class/infiniband").join(&name);
    let numa = fs::read_to_string(place.join("device/numa_node")).unwrap_or_default();
    let mut numbers: Vec<u8> = fs::read_dir(place.join("ports"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let ports = numbers.into_iter().filter_map(|number| port(library, context, &place, number)).collect();
    // SAFETY: it was opened above, and nothing was made in it.
    unsafe { (library.ibv_close_device)(context) };
    // A machine with one node says -1.
    Some(Device { name, numa_node: numa.trim().parse().ok(), ports })
}

fn port(library: &Library, context: *mut Context, place: &Path, number: u8) -> Option<Port> {
    let mut attributes = PortAttr::new();
    // SAFETY: the context is open, and there is room for what the library writes.
    let failed = unsafe { (library.ibv_query_port)(context, number, &mut attributes) };
    if failed != 0 {
        return None;
    }
    let place = place.join(format!("ports/{number}/gid_attrs/types"));
    let entries = 0..attributes.gid_tbl_len;
    let addresses =
        entries.filter_map(|index| address(library, context, number, index, place.join(index.to_string())));
    Some(Port {
        number,
        active: attributes.state == PORT_ACTIVE,
        ethernet: attributes.link_layer == LINK_LAYER_ETHERNET,
        // 1 means 256, and each further one the double.
        mtu_bytes: 128_u32.checked_shl(attributes.active_mtu).unwrap_or(0),
        addresses: addresses.collect(),
    })
}

fn address(library: &Library, context: *mut Context, port: u8, index: i32, kind: PathBuf) -> Option<Address> {
    let mut bytes = [0; 16];
    // SAFETY: the context is open, and an address has 16 bytes.
    let failed = unsafe { (library.ibv_query_gid)(context, port, index, &mut bytes) };
    if failed != 0 || bytes == [0; 16] {
        return None;
    }
    let kind = fs::read_to_string(kind).unwrap_or_default();
    let address = Ipv6Addr::from(bytes);
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    Some(Address { index: u32::try_from(index).ok()?, address, roce_v2: kind.trim() == "RoCE v2" })
}
