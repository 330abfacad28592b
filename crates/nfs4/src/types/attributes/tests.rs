//! Tests of the table of attributes, the order on the wire, and what is refused.

use super::*;
use proptest::prelude::*;

fn encoded(attributes: &Attributes<'_>, wanted: Bitmap) -> Vec<u8> {
    let mut out = Vec::new();
    attributes.encode_some(wanted, &mut Writer::new(&mut out));
    out
}

#[test]
fn the_table_ascends() {
    assert!(NAMES.is_sorted_by_key(|(number, _)| *number));
    assert_eq!(NAMES.len(), KNOWN.iter().count());
    assert!(
        REQUIRED.is_within(KNOWN) && SETTABLE.is_within(KNOWN) && WRITE_ONLY.is_within(SETTABLE_AT_CREATION)
    );
}

// RFC 8881 s5.6, s5.7; RFC 7863; RFC 8276 s8.2
#[test]
fn the_numbers_are_those_of_the_standards() {
    let of = |name| NAMES.iter().find(|(_, one)| *one == name).map(|(number, _)| *number);
    for (name, number) in [
        ("file_type", 1),
        ("lease_time", 10),
        ("filehandle", 19),
        ("fileid", 20),
        ("fs_locations", 24),
        ("mode", 33),
        ("owner_group", 37),
        ("rawdev", 41),
        ("space_used", 45),
        ("time_modify_set", 54),
        ("mounted_on_fileid", 55),
        ("fs_layout_types", 62),
        ("mdsthreshold", 68),
        ("suppattr_exclcreat", 75),
        ("change_attr_type", 79),
        ("mode_umask", 81),
        ("xattr_support", 82),
    ] {
        assert_eq!(of(name), Some(number), "{name}");
    }
}

// RFC 8881 s3.3.7: the values ascend by number, whatever the order in which they were set.
#[test]
fn values_ascend_by_their_number() {
    let attributes = Attributes {
        xattr_support: Some(true),
        mode: Some(0o644),
        size: Some(0x0102_0304_0506_0708),
        file_type: Some(FileType::Regular),
        ..Attributes::default()
    };
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 3, // attrmask: three words
        0, 0, 0, 0x12, // bits 1 (type) and 4 (size)
        0, 0, 0, 2, // bit 33 (mode)
        0, 4, 0, 0, // bit 82 (xattr_support)
        0, 0, 0, 20, // attr_vals: 4 + 8 + 4 + 4 bytes
        0, 0, 0, 1, // NF4REG
        1, 2, 3, 4, 5, 6, 7, 8, // size
        0, 0, 1, 0xa4, // 0o644
        0, 0, 0, 1, // true
    ];
    assert_eq!(encoded(&attributes, KNOWN), expected);
    let mut reader = Reader::new(&expected);
    let raw = RawFattr::decode(&mut reader).unwrap();
    assert_eq!((raw.parse(), reader.remaining()), (Ok(attributes), 0));
}

#[test]
fn only_what_was_asked_for_and_is_known_is_sent() {
    let attributes = Attributes { size: Some(1), mode: Some(2), ..Attributes::default() };
    let wanted = Bitmap::of(&[number::MODE, number::OWNER]);
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, // attrmask: bit 33
        0, 0, 0, 4, 0, 0, 0, 2, // attr_vals: the mode
    ];
    assert_eq!(encoded(&attributes, wanted), expected);
}

#[test]
fn what_is_not_supported_or_not_settable_is_told_apart() {
    let supported = REQUIRED | Bitmap::of(&[number::MODE, number::TIME_MODIFY_SET]);
    let status = |mask: Bitmap| {
        let raw = RawFattr { mask, values: &[] };
        raw.parse_settable(supported, SETTABLE).map_err(AttributeError::status).err()
    };
    // RFC 8881 s15.1.15.1: known, but not supported here.
    assert_eq!(status(Bitmap::of(&[number::ACL])), Some(Status::ATTRNOTSUPP));
    // An attribute of which no type is known (58 is dacl), and one beyond all standards.
    assert_eq!(status(Bitmap::of(&[58])), Some(Status::ATTRNOTSUPP));
    let mut beyond = Bitmap::EMPTY;
    beyond.insert(1000);
    assert_eq!(status(beyond), Some(Status::ATTRNOTSUPP));
    // RFC 8881 s18.30.4: a read-only attribute.
    assert_eq!(status(Bitmap::of(&[number::FSID])), Some(Status::INVAL));
    // The value of the mode is missing.
    assert_eq!(status(Bitmap::of(&[number::MODE])), Some(Status::BADXDR));
    assert_eq!(status(Bitmap::EMPTY), None);
    // RFC 8275: the umask is for creation only.
    let umask = RawFattr { mask: Bitmap::of(&[number::MODE_UMASK]), values: &[0; 8] };
    assert_eq!(umask.parse_settable(KNOWN, SETTABLE), Err(AttributeError::NotAllowed(number::MODE_UMASK)));
    assert!(umask.parse_settable(KNOWN, SETTABLE_AT_CREATION).is_ok());
}

#[test]
fn bytes_after_the_last_value_are_an_error() {
    let raw = RawFattr { mask: Bitmap::of(&[number::MODE]), values: &[0, 0, 0, 1, 0, 0, 0, 2] };
    assert_eq!(raw.parse(), Err(AttributeError::Xdr(xdr::Error::Trailing(4))));
}

// RFC 8881 s18.31.3
#[test]
fn write_only_attributes_and_the_error_of_an_entry_cannot_be_compared() {
    for number in [number::TIME_ACCESS_SET, number::RDATTR_ERROR] {
        let raw = RawFattr { mask: Bitmap::of(&[number]), values: &[] };
        assert_eq!(raw.parse_comparable(KNOWN), Err(AttributeError::NotAllowed(number)));
    }
    let raw = RawFattr { mask: Bitmap::of(&[number::MODE]), values: &[0, 0, 0, 1] };
    assert_eq!(raw.parse_comparable(KNOWN).unwrap().mode, Some(1));
    assert_eq!(raw.parse_comparable(REQUIRED), Err(AttributeError::NotSupported(number::MODE)));
}

#[test]
fn an_object_reads_back_as_it_was_sent() {
    let object = fs::Attributes {
        mode: 0o4755,
        nlink: 3,
        uid: 1000,
        gid: 100,
        size: 1 << 40,
        used: 4096,
        rdev: Device { major: 8, minor: 1 },
        fsid: 77,
        fileid: 42,
        atime: Time { seconds: -5, nanoseconds: 1 },
        mtime: Time { seconds: 6, nanoseconds: 2 },
        ctime: Time { seconds: 7, nanoseconds: 3 },
        ..fs::Attributes::of(fs::FileKind::BlockDevice)
    };
    let bytes = encoded(&Attributes::of_object(&object), KNOWN);
    let raw = RawFattr::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(raw.parse().unwrap().object(b""), Some(object));
}

#[test]
fn an_owner_that_is_no_number_is_nobody_and_never_root() {
    let told = Attributes {
        file_type: Some(FileType::Regular),
        owner: Some(Owner::Name(b"alice@example.org")),
        owner_group: Some(Owner::Id(0)),
        ..Attributes::default()
    };
    let of = |told: &Attributes<'_>, domain| told.object(domain).map(|object| (object.uid, object.gid));
    assert_eq!(of(&told, b"example.org"), Some((65_534, 0)));
    let told = Attributes { owner: Some(Owner::Name(b"7@example.org")), owner_group: None, ..told };
    assert_eq!(of(&told, b"example.org"), Some((7, 65_534)));
    assert_eq!(of(&told, b""), Some((65_534, 65_534)));
}

#[test]
fn what_is_to_be_set_reads_back_and_unknown_owners_are_refused() {
    let set = fs::SetAttributes {
        mode: Some(0o600),
        uid: Some(0),
        gid: Some(u32::MAX),
        size: Some(9),
        atime: fs::SetTime::Now,
        mtime: fs::SetTime::To(Time { seconds: -1, nanoseconds: 999_999_999 }),
    };
    let bytes = encoded(&Attributes::of_set(&set), KNOWN);
    let raw = RawFattr::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(raw.parse_settable(KNOWN, SETTABLE).unwrap().to_set(b""), Ok(set));
    let named = Attributes { owner: Some(Owner::Name(b"root@a")), ..Attributes::default() };
    assert_eq!(named.to_set(b"a"), Err(Status::BADOWNER));
}

// Found by fuzzing: the value of an attribute can be a bitmap itself.
#[test]
fn a_bitmap_among_the_values_may_have_numbers_beyond_the_standards() {
    let mut bytes = Vec::new();
    let values = [4_u32, 1, 0, 0, 1].map(u32::to_be_bytes).concat();
    let raw = RawFattr { mask: Bitmap::of(&[number::SUPPATTR_EXCLCREAT]), values: &values };
    raw.encode(&mut Writer::new(&mut bytes));
    crate::fuzzing::attributes(&bytes);
    assert!(raw.parse().unwrap().suppattr_exclcreat.unwrap().has_beyond());
}

proptest! {
    #[test]
    fn arbitrary_values_of_any_attributes_do_no_harm(
        numbers in proptest::collection::vec(0_u32..96, 0..12),
        values in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let raw = RawFattr { mask: Bitmap::of(&numbers), values: &values };
        let mut bytes = Vec::new();
        raw.encode(&mut Writer::new(&mut bytes));
        crate::fuzzing::attributes(&bytes);
    }
}
