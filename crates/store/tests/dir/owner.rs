//! Tests the owner of a file, and the single identity of a server that does not run as root.

use crate::again::as_root_and_not;
use crate::fixture::{Home, file, list, mode, open_to_all, read, write};
use store::{Caller, Store, Wait};

const ANN: Caller<'static> = Caller { uid: 1001, gid: 1001, gids: &[] };
const BEN: Caller<'static> = Caller { uid: 1002, gid: 1002, gids: &[] };

#[test]
fn the_owner_may_always_read_and_write_a_file() {
    // RFC 1813 s4.4
    as_root_and_not("owner::the_owner_may_always_read_and_write_a_file", || {
        let home = Home::new();
        let store = open_to_all(&home);
        let made = file(&store, ANN, store.root(), "object", 0o444);
        assert_eq!(write(&store, ANN, made, b"git"), Ok(3));
        drop(store);
        let store = home.open();
        assert_eq!(
            write(&store, ANN, made, b"GIT"),
            Ok(3),
            "also without the descriptor that created the file"
        );
        store.set_attributes(ANN, made, &mode(0), None).1.unwrap();
        drop(store);
        let store = home.open();
        assert_eq!(read(&store, ANN, made).unwrap(), b"GIT");
        assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mode, 0);
        store.set_attributes(ANN, made, &mode(0o111), None).1.unwrap();
        assert_eq!(
            read(&store, BEN, made).unwrap(),
            b"GIT",
            "a caller that may execute a file may read it: RFC 1813 s3.3.6"
        );
    });
}

#[test]
fn a_server_that_is_not_root_acts_as_its_own_user_and_says_so() {
    as_root_and_not("owner::a_server_that_is_not_root_acts_as_its_own_user_and_says_so", || {
        let home = Home::new();
        let store = home.open();
        let own = rustix::process::geteuid().as_raw();
        if own == 0 {
            assert_eq!(store.notes(), Vec::<String>::new());
            return;
        }
        assert!(store.notes()[0].contains(&format!("user {own}")), "{:?}", store.notes());
        let made = file(&store, ANN, store.root(), "f", 0o600);
        assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().uid, own);
        assert_eq!(write(&store, BEN, made, b"one for all"), Ok(11));
        assert_eq!(list(&store, store.root(), 10).unwrap().len(), 3);
    });
}
