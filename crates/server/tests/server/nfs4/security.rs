//! Whose credential is enough for what. RFC 8881 s2.6.3, s2.10.8.3

use super::client::{
    Client, after_sequence, call, config_with_4, encoded, lookup, outcome, put, start, start_with,
};
use crate::peer::{Peer, credential};
use nfs4::op::{self, Args, kind};
use nfs4::{Bitmap, OwnerId, StateOwner, Status};
use server::Config;

/// An export that wants to know who calls, and one that does not.
fn config() -> Config {
    let mut config = config_with_4();
    let export = config.exports.remove(0);
    for (fsid, path) in (1..).zip(["/top/known", "/top/open"]) {
        config.exports.push(server::ExportConfig { path: path.to_owned(), fsid, ..export.clone() });
    }
    config.exports[1].all_squash = true;
    config
}

fn get() -> Args<'static> {
    Args::GetAttr(op::getattr::Args { wanted: Bitmap::of(&[1]) })
}

// RFC 8881 s2.6.3.1
#[test]
fn a_credential_that_is_not_enough_is_refused_where_the_standard_says() {
    let (_server, address) = start_with(config());
    let mut user = Client::new(address, "user");
    let (known, open) = (user.walk(&["top", "known"]).unwrap(), user.walk(&["top", "open"]).unwrap());
    let mode = nfs4::Attributes { mode: Some(0o644), ..nfs4::Attributes::default() };
    let how = op::open::How::Unchecked(nfs4::Fattr::all(&mode));
    let owner = StateOwner { client: user.id, owner: OwnerId::new(b"opener").unwrap() };
    let claim = op::open::Claim::Name(b"file");
    let make = Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim });
    assert_eq!(user.run(|to| _ = to.push(&put(known)).push(&make)), Status::OK);
    let mut nobody = Client::of_nobody(address, "nobody");
    let owner = StateOwner { client: nobody.id, owner: OwnerId::new(b"opener").unwrap() };
    let open_by = |claim| {
        let how = op::open::How::NoCreate;
        Args::Open(op::open::Args { seqid: 0, access: 1, deny: 0, owner, how, claim })
    };
    let by_name = open_by(op::open::Claim::Name(b"file"));
    let by_handle = open_by(op::open::Claim::Current);
    let sec_info = Args::SecInfo(op::secinfo::Args { name: b"file" });
    let style = |style| Args::SecInfoNoName(op::secinfo::NoNameArgs { style });
    let (own, parent) = (style(op::secinfo::Style::Current), style(op::secinfo::Style::Parent));
    let (save, restore, root, up) =
        (Args::SaveFh(()), Args::RestoreFh(()), Args::PutRootFh(()), Args::LookupP(()));
    let wrong = Status::WRONGSEC;
    // The results count that of SEQUENCE.
    let cases: &[(&[Args<'_>], (Status, u32))] = &[
        (&[put(open), get()], (Status::OK, 3)),
        (&[put(known), get()], (wrong, 2)),
        (&[put(known), by_handle], (wrong, 2)),
        (&[put(known), save, get()], (wrong, 2)),
        (&[put(known)], (Status::OK, 2)),
        (&[put(known), put(open), get()], (Status::OK, 4)),
        (&[put(known), save, put(open), get()], (Status::OK, 5)),
        (&[put(known), save, put(open), restore, get()], (wrong, 5)),
        (&[put(known), lookup("file")], (wrong, 3)),
        (&[put(known), up, get()], (Status::OK, 4)),
        (&[put(known), by_name], (wrong, 3)),
        (&[root, lookup("top"), lookup("known")], (wrong, 4)),
        (&[root, lookup("top"), lookup("open"), get()], (Status::OK, 5)),
        (&[put(known), sec_info], (Status::OK, 3)),
        (&[put(known), own], (Status::OK, 3)),
        (&[put(known), parent], (Status::OK, 3)),
        (&[put(known), own, get()], (Status::NOFILEHANDLE, 4)),
        (&[put(known), sec_info, Args::GetFh(())], (Status::NOFILEHANDLE, 4)),
        (&[root, lookup("top"), sec_info], (Status::NOENT, 4)),
    ];
    for (args, expected) in cases {
        let results = nobody.send(|to| args.iter().for_each(|args| _ = to.push(args)));
        assert_eq!(outcome(&results), *expected, "{args:?}");
    }
    let results = nobody.send(|to| _ = to.push(&put(known)).push(&own));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let flavors = reader.expect::<kind::SecInfoNoName>().unwrap().unwrap();
    assert_eq!(flavors.iter().collect::<Vec<_>>(), [op::secinfo::Flavor::Plain(1)]);
}

/// The name of an entry, and its `rdattr_error`.
type Told = (Vec<u8>, Option<Status>);

// RFC 8881 s18.23.3
#[test]
fn an_entry_without_attributes_says_so_or_ends_the_listing() {
    let (_server, address) = start_with(config());
    let mut nobody = Client::of_nobody(address, "nobody");
    let top = nobody.walk(&["top"]).unwrap();
    let mut list = |wanted: &[u32]| -> Result<Vec<Told>, Status> {
        let wanted = Bitmap::of(wanted);
        let args = op::readdir::Args { cookie: 0, verifier: [0; 8], dircount: 0, maxcount: 4096, wanted };
        let results = nobody.send(|to| _ = to.push(&put(top)).push(&Args::ReadDir(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let page = reader.expect::<kind::ReadDir>().unwrap()?;
        let status = |entry: op::readdir::Entry<'_>| entry.attributes.parse().unwrap().rdattr_error;
        Ok(page.entries.iter().map(|entry| (entry.name.to_vec(), status(entry))).collect())
    };
    let told = [(b"known".to_vec(), Some(Status::WRONGSEC)), (b"open".to_vec(), Some(Status::OK))];
    assert_eq!(list(&[8, 11]), Ok(told.to_vec()));
    assert_eq!(list(&[8]), Err(Status::ACCESS), "READDIR itself is never refused for the credential");
}

// RFC 8881 s2.10.8.3
#[test]
fn others_use_a_session_but_neither_end_it_nor_its_client() {
    let (_server, address) = start();
    let mut client = Client::new(address, "mine");
    let mut other = Peer::with_credential(address, credential(1, b"mine", 77, 77));
    let mut alone = |args: Args<'_>| outcome(&call(&mut other, &encoded(2, |to| _ = to.push(&args)))).0;
    let session = Args::DestroySession(op::create_session::DestroyArgs { session: client.session });
    let channels = op::session_control::WantedChannels::Fore;
    let bind = op::session_control::BindArgs { session: client.session, channels, rdma_mode: false };
    let end = Args::DestroyClientId(op::exchange_id::DestroyArgs { client: client.id });
    for args in [session, Args::BindConnToSession(bind), end] {
        assert_eq!(alone(args), Status::WRONG_CRED, "{args:?}");
    }
    let request = client.request(&[], |to| _ = to.push(&Args::PutRootFh(())));
    assert_eq!(outcome(&call(&mut other, &request)), (Status::OK, 2), "anybody sends requests");
    assert_eq!(client.run(|to| _ = to.push(&session)), Status::OK);
}
