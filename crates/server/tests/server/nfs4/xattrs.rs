//! Extended attributes. RFC 8276

use super::client::{Client, put};
use super::stores::{after_put, on_each, on_each_with};
use fs::{FileHandle, Rights};
use nfs4::op::xattr::{self, SetOption};
use nfs4::op::{self, Args, kind};
use nfs4::{Bitmap, ChangeInfo, Status};

/// The number of the attribute xattr_support.
const XATTR_SUPPORT: u32 = 82;

impl Client {
    fn set_xattr(
        &mut self,
        object: FileHandle,
        option: SetOption,
        name: &[u8],
        value: &[u8],
    ) -> Result<ChangeInfo, Status> {
        let args = Args::SetXattr(xattr::SetArgs { option, name, value });
        let results = self.send(|to| _ = to.push(&put(object)).push(&args));
        after_put(&results).expect::<kind::SetXattr>().unwrap()
    }

    fn xattr(&mut self, object: FileHandle, name: &[u8]) -> Result<Vec<u8>, Status> {
        let args = Args::GetXattr(xattr::GetArgs { name });
        let results = self.send(|to| _ = to.push(&put(object)).push(&args));
        let got = after_put(&results).expect::<kind::GetXattr>().unwrap();
        got.map(<[u8]>::to_vec)
    }

    fn remove_xattr(&mut self, object: FileHandle, name: &[u8]) -> Result<ChangeInfo, Status> {
        let args = Args::RemoveXattr(xattr::RemoveArgs { name });
        let results = self.send(|to| _ = to.push(&put(object)).push(&args));
        after_put(&results).expect::<kind::RemoveXattr>().unwrap()
    }

    fn list_page(
        &mut self,
        object: FileHandle,
        cookie: u64,
        count_max: u32,
    ) -> Result<(Vec<Vec<u8>>, u64, bool), Status> {
        let args = Args::ListXattrs(xattr::ListArgs { cookie, count_max });
        let results = self.send(|to| _ = to.push(&put(object)).push(&args));
        let page = after_put(&results).expect::<kind::ListXattrs>().unwrap()?;
        Ok((page.names.iter().map(<[u8]>::to_vec).collect(), page.cookie, page.eof))
    }

    /// All names, sorted, read with answers of at most `count_max` bytes.
    fn xattrs(&mut self, object: FileHandle, count_max: u32) -> Vec<String> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (names, next, eof) = self.list_page(object, cookie, count_max).unwrap();
            // A cookie, the number of names, and whether the list ends.
            let bytes: usize = names.iter().map(|name| 4 + name.len().next_multiple_of(4)).sum();
            assert!(16 + bytes <= count_max as usize);
            all.extend(names.into_iter().map(|name| String::from_utf8(name).unwrap()));
            if eof {
                all.sort();
                return all;
            }
            assert_ne!(next, cookie);
            cookie = next;
        }
    }

    fn has_xattrs(&mut self, object: FileHandle) -> bool {
        let has = self.attributes(object, &[XATTR_SUPPORT]).unwrap().xattr_support.unwrap();
        if !has {
            eprintln!("skipped: the file system beneath has no extended attributes");
        }
        has
    }
}

use SetOption::{Create, Either, Replace};

#[test]
fn attributes_are_set_read_listed_and_removed() {
    on_each(|address| {
        let mut client = Client::new(address, "xattrs");
        let (file, _) = client.open("file", 3, 0).unwrap();
        if !client.has_xattrs(file) {
            return;
        }
        for object in [file, client.export()] {
            assert_eq!(client.xattrs(object, 4096), [""; 0]);
            assert_eq!(client.xattr(object, b"a"), Err(Status::NOXATTR));
            assert_eq!(client.set_xattr(object, Replace, b"a", b"1"), Err(Status::NOXATTR));
            let before = client.attributes(object, &[3]).unwrap().change.unwrap();
            let change = client.set_xattr(object, Create, b"a", b"1").unwrap();
            assert!(change.before == before && change.after != before);
            assert_eq!(client.set_xattr(object, Create, b"a", b"2"), Err(Status::EXIST));
            assert_eq!(client.xattr(object, b"a").unwrap(), b"1");
            client.set_xattr(object, Replace, b"a", b"").unwrap();
            assert_eq!(client.xattr(object, b"a").unwrap(), b"");
            client.set_xattr(object, Either, b"a", &[9; 1000]).unwrap();
            assert_eq!(client.xattr(object, b"a").unwrap(), [9; 1000]);
            client.set_xattr(object, Either, b"name.with/everything \xff", b"x").unwrap();
            client.remove_xattr(object, b"name.with/everything \xff").unwrap();
            let names: Vec<_> = (0..30).map(|number| format!("attribute{number:02}")).collect();
            for name in &names {
                client.set_xattr(object, Either, name.as_bytes(), name.as_bytes()).unwrap();
            }
            client.remove_xattr(object, b"a").unwrap();
            assert_eq!(client.remove_xattr(object, b"a"), Err(Status::NOXATTR));
            assert_eq!(client.xattrs(object, 1 << 20), names);
            assert_eq!(client.xattrs(object, 32), names, "one by one");
            for name in &names {
                client.remove_xattr(object, name.as_bytes()).unwrap();
            }
        }
    });
}

// RFC 8276 s8.4.3.3, s8.3.1
#[test]
fn names_values_and_lists_have_bounds() {
    on_each(|address| {
        let mut client = Client::new(address, "bounds");
        let (file, _) = client.open("file", 3, 0).unwrap();
        if !client.has_xattrs(file) {
            return;
        }
        let mut set = |name: &[u8], value: &[u8]| client.set_xattr(file, Either, name, value).err();
        assert_eq!(set(b"", b"x"), Some(Status::INVAL));
        assert_eq!(set(&[b'n'; 251], b"x"), Some(Status::NAMETOOLONG));
        assert_eq!(set(b"a\0b", b"x"), Some(Status::INVAL));
        assert_eq!(set(b"big", &vec![1; (64 << 10) + 1]), Some(Status::XATTR2BIG));
        assert_eq!(set(&[b'n'; 250], b"x"), None);
        for name in [&b""[..], b"a\0b"] {
            assert_eq!(client.xattr(file, name), Err(Status::INVAL));
            assert_eq!(client.remove_xattr(file, name), Err(Status::INVAL));
        }
        assert_eq!(client.xattr(file, &[b'n'; 251]), Err(Status::NAMETOOLONG));
        // The name of 250 bytes takes 256.
        for too_small in [0, 15, 16, 16 + 255] {
            assert_eq!(client.list_page(file, 0, too_small), Err(Status::TOOSMALL), "{too_small}");
        }
        let (names, cookie, eof) = client.list_page(file, 0, 16 + 256).unwrap();
        assert_eq!((names, eof), (vec![vec![b'n'; 250]], true));
        assert_eq!(client.list_page(file, cookie, 16), Ok((Vec::new(), cookie, true)), "the end");
        assert_eq!(client.list_page(file, u64::MAX, 4096), Ok((Vec::new(), u64::MAX, true)));
        client.remove_xattr(file, &[b'n'; 250]).unwrap();
        assert_eq!(client.list_page(file, 0, 16), Ok((Vec::new(), 0, true)));
        assert_eq!(client.list_page(file, 0, 15), Err(Status::TOOSMALL));
    });
}

#[test]
fn attributes_need_rights() {
    on_each(|address| {
        let (mut root, mut user) = (Client::new(address, "root"), Client::of_user(address, "user", 1000));
        let (file, _) = root.open("file", 3, 0).unwrap();
        if !root.has_xattrs(file) {
            return;
        }
        root.set_xattr(file, Either, b"a", b"1").unwrap();
        assert_eq!(user.xattr(file, b"a").unwrap(), b"1");
        assert_eq!(user.xattrs(file, 4096), ["a"]);
        assert_eq!(user.set_xattr(file, Either, b"a", b"2"), Err(Status::ACCESS));
        assert_eq!(user.remove_xattr(file, b"a"), Err(Status::ACCESS));
        root.set_mode(file, 0o600);
        assert_eq!(user.xattr(file, b"a"), Err(Status::ACCESS));
        assert_eq!(user.list_page(file, 0, 4096), Err(Status::ACCESS));
    });
    on_each_with(
        |config| config.exports[0].read_only = true,
        |address| {
            let mut client = Client::new(address, "reader");
            let export = client.export();
            assert_eq!(client.set_xattr(export, Either, b"a", b"1"), Err(Status::ROFS));
            assert_eq!(client.remove_xattr(export, b"a"), Err(Status::ROFS));
        },
    );
}

/// What may be asked of ACCESS. RFC 8276 s8.5
fn rights(client: &mut Client, object: FileHandle) -> (Rights, Rights) {
    let args = Args::Access(op::access::Args { access: Rights(0xffff) });
    let results = client.send(|to| _ = to.push(&put(object)).push(&args));
    let rights = after_put(&results).expect::<kind::Access>().unwrap().unwrap();
    (rights.supported, rights.access)
}

#[test]
fn access_and_attributes_say_what_there_is() {
    let read = Rights::READ_XATTRS | Rights::LIST_XATTRS;
    let all = read | Rights::WRITE_XATTRS;
    on_each_with(
        |config| config.exports[1].read_only = true,
        |address| {
            let (mut root, mut user) = (Client::new(address, "root"), Client::of_user(address, "user", 1000));
            let (file, _) = root.open("file", 3, 0).unwrap();
            if !root.has_xattrs(file) {
                return;
            }
            assert_eq!(rights(&mut root, file).1 & all, all);
            assert_eq!(rights(&mut user, file), (Rights(0x1ff), Rights::READ | read));
            let other = root.walk(&["other"]).unwrap();
            assert_eq!(rights(&mut root, other).1 & all, read, "it is for reading");
            let top = root.walk(&[]).unwrap();
            assert_eq!(rights(&mut root, top).1, Rights::READ | Rights::LOOKUP | read);
            assert!(root.has_xattrs(top), "Linux asks there");
            assert_eq!(root.list_page(top, 0, 4096), Ok((Vec::new(), 0, true)));
            assert_eq!(root.xattr(top, b"a"), Err(Status::NOXATTR));
            assert_eq!(root.set_xattr(top, Either, b"a", b"1"), Err(Status::ROFS));
            // Version 4.1 has none of this.
            root.minor = 1;
            assert_eq!(rights(&mut root, file).0, Rights(0x3f));
            let supported = root.attributes(file, &[0]).unwrap().supported_attrs.unwrap();
            assert!((supported & Bitmap::of(&[XATTR_SUPPORT, 77])).is_empty());
            let get = Args::GetXattr(xattr::GetArgs { name: b"a" });
            assert_eq!(root.on(file, &get), Status::OP_ILLEGAL);
        },
    );
}

#[test]
fn links_have_no_attributes() {
    on_each(|address| {
        let mut client = Client::new(address, "links");
        let export = client.export();
        let (what, attributes) = (op::create::What::Symlink(b"to"), nfs4::Fattr::EMPTY);
        let link = Args::Create(op::create::Args { what, name: b"link", attributes });
        assert_eq!(client.on(export, &link), Status::OK);
        if !client.has_xattrs(export) {
            return;
        }
        let link = client.walk(&["export", "link"]).unwrap();
        assert_eq!(client.set_xattr(link, Either, b"a", b"1"), Err(Status::PERM));
        assert!(client.xattr(link, b"a").is_err());
    });
}
