//! The content of layouts and devices of the layout type of files. RFC 8881 s13.2, s13.3

use super::DeviceId;
use crate::array::Array;
use crate::wire::wire_fields;
use crate::{NetAddr, Wire};
use fs::FileHandle;
use xdr::{Reader, Result, Writer};

/// Stripes are packed together on their data servers (NFL4_UFLG_DENSE). RFC 8881 s13.3
pub const DENSE: u32 = 0x1;
/// COMMIT goes to the metadata server (NFL4_UFLG_COMMIT_THRU_MDS). RFC 8881 s13.3
pub const COMMIT_THROUGH_METADATA_SERVER: u32 = 0x2;
/// The bits of the stripe unit, in bytes (NFL4_UFLG_STRIPE_UNIT_SIZE_MASK). RFC 8881 s13.3
pub const STRIPE_UNIT_MASK: u32 = 0xffff_ffc0;

/// `nfsv4_1_file_layout_ds_addr4`: the content of `da_addr_body`. RFC 8881 s13.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device<'a> {
    /// For each stripe, the index of its data server.
    pub stripe_indices: Array<'a, u32>,
    /// The data servers, each with all its addresses (`multipath_list4`).
    pub servers: Array<'a, Array<'a, NetAddr<'a>>>,
}

wire_fields!(Device<'a> { stripe_indices, servers });

/// `nfsv4_1_file_layout4`: the content of `loc_body`. RFC 8881 s13.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout<'a> {
    /// The device.
    pub device: DeviceId,
    /// The stripe unit and [`DENSE`], [`COMMIT_THROUGH_METADATA_SERVER`] (`nfl_util`).
    pub util: u32,
    /// Which stripe comes first.
    pub first_stripe: u32,
    /// Where the pattern begins in the file.
    pub pattern_offset: u64,
    /// The file's handles at the data servers: none if they are that of the metadata server, one
    /// for all, or one for each stripe.
    pub handles: Array<'a, FileHandle>,
}

wire_fields!(Layout<'a> { device, util, first_stripe, pattern_offset, handles });

/// Encodes a body that becomes opaque data of a layout or of a device.
pub fn encode_body<'a>(body: &impl Wire<'a>, out: &mut Vec<u8>) {
    body.encode(&mut Writer::new(out));
}

/// Decodes such a body to its end.
///
/// # Errors
/// Bytes that are missing or too many.
pub fn decode_body<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T> {
    let mut reader = Reader::new(body);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s13.3
    #[test]
    fn a_device_of_one_stripe_with_two_addresses() {
        let addresses = [
            NetAddr { netid: b"tcp", address: b"10.0.0.1.8.1" },
            NetAddr { netid: b"tcp", address: b"10.0.0.2.8.1" },
        ];
        let servers = [Array::from(&addresses)];
        let device = Device { stripe_indices: Array::from(&[0]), servers: Array::from(&servers) };
        let mut body = Vec::new();
        encode_body(&device, &mut body);
        let mut expected = vec![
            0, 0, 0, 1, 0, 0, 0, 0, // nflda_stripe_indices: one, with the first data server
            0, 0, 0, 1, // nflda_multipath_ds_list: one data server
            0, 0, 0, 2, // with two addresses
        ];
        for address in [b"10.0.0.1.8.1", b"10.0.0.2.8.1"] {
            expected.extend([0, 0, 0, 3, b't', b'c', b'p', 0]); // na_r_netid
            expected.extend([0, 0, 0, 12]); // na_r_addr
            expected.extend(address);
        }
        assert_eq!(body, expected);
        assert_eq!(decode_body(&body), Ok(device));
        assert!(decode_body::<Device<'_>>(body.get(1..).unwrap()).is_err());
    }

    // RFC 8881 s13.3
    #[test]
    fn a_layout_of_one_stripe() {
        let layout = Layout {
            device: [9; 16],
            util: (64 << 20) | COMMIT_THROUGH_METADATA_SERVER,
            first_stripe: 0,
            pattern_offset: 0,
            handles: Array::default(),
        };
        let mut body = Vec::new();
        encode_body(&layout, &mut body);
        let mut expected = vec![9; 16]; // nfl_deviceid
        expected.extend([4, 0, 0, 2]); // nfl_util: 64 MiB, COMMIT_THRU_MDS
        expected.extend([0; 4]); // nfl_first_stripe_index
        expected.extend([0; 8]); // nfl_pattern_offset
        expected.extend([0; 4]); // nfl_fh_list: none
        assert_eq!(body, expected);
        assert_eq!(decode_body(&body), Ok(layout));
    }
}
