//! Tests directories that are listed page by page, with a server that the test plays.

#[path = "support/fake.rs"]
mod fake;

use std::time::Duration;

use client::{Error, Mount, Settings};
use fake::{Fake, Request};

/// The results of a READDIRPLUS with one name, which ends the listing if `eof`. RFC 1813 s3.3.17
fn directory_of(name: &[u8], cookie: u64, eof: bool) -> Vec<u8> {
    let mut results = vec![0; 16];
    results.extend([0, 0, 0, 1].iter().chain(&7_u64.to_be_bytes()));
    results.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    results.extend(name);
    results.resize(results.len().next_multiple_of(4), 0);
    results.extend(cookie.to_be_bytes());
    // No attributes, no handle, and no other name.
    results.extend([0; 12]);
    results.extend([0, 0, 0, u8::from(eof)]);
    results
}

fn args_of(call: &Request) -> nfs3::proc::readdirplus::Args {
    nfs3::Wire::decode(&mut xdr::Reader::new(&call.args)).unwrap()
}

fn listed(name: &[u8]) -> client::Result<Vec<fs::DirectoryEntry>> {
    let fake = Fake::start(1);
    let mount = fake.mount();
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| mount.read_directory(mount.root()));
        fake.next().reply(&directory_of(name, 1, true));
        listing.join().unwrap()
    })
}

#[test]
fn a_name_that_would_leave_its_directory_fails_the_listing() {
    let good = listed(b"\xff..\n").unwrap();
    assert_eq!(good.len(), 1, "any other bytes are a name");
    assert!(listed(b"..").unwrap().is_empty());
    for name in [&b"../up"[..], b"/etc/passwd", b"a/b", b"/", b"", b"a\0b"] {
        let result = listed(name);
        assert!(matches!(result, Err(Error::PeerMisbehaved { .. })), "{name:?}: {result:?}");
    }
}

/// A page of one name, or the status that refuses the cookie. RFC 1813 s3.3.17
enum Page {
    Of(&'static [u8], u64, bool),
    BadCookie,
}

/// A cookie and its verifier.
type Asked = (u64, [u8; 8]);

/// Lists the root of a server that answers with these pages. Returns the names, and the cookie and
/// verifier of each call.
fn listed_from(pages: &[Page]) -> (client::Result<Vec<Vec<u8>>>, Vec<Asked>) {
    let fake = Fake::start(1);
    let mount = fake.mount();
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| mount.read_directory(mount.root()));
        let mut asked = Vec::new();
        for page in pages {
            let call = fake.next();
            let args = args_of(&call);
            asked.push((args.cookie, args.verifier));
            match page {
                Page::Of(name, cookie, eof) => {
                    let mut results = directory_of(name, *cookie, *eof);
                    // A verifier that the client must send back until the listing restarts.
                    results[8..16].copy_from_slice(&[7; 8]);
                    call.reply(&results);
                }
                Page::BadCookie => {
                    call.reply(&[&nfs3::Status::BAD_COOKIE.0.to_be_bytes()[..], &[0; 4]].concat());
                }
            }
        }
        let names = listing.join().unwrap();
        (names.map(|entries| entries.into_iter().map(|entry| entry.name).collect()), asked)
    })
}

// RFC 1813 s3.3.16
#[test]
fn a_listing_whose_cookie_is_refused_restarts_and_returns_each_name_once() {
    let (names, asked) = listed_from(&[
        Page::Of(b"a", 11, false),
        Page::Of(b"b", 12, false),
        Page::BadCookie,
        // The server has renumbered and reordered its names.
        Page::Of(b"c", 1, false),
        Page::Of(b"a", 2, false),
        Page::BadCookie,
        Page::Of(b"b", 101, false),
        Page::Of(b"d", 102, true),
    ]);
    assert_eq!(names.unwrap(), [b"a", b"b", b"c", b"d"]);
    let cookies: Vec<u64> = asked.iter().map(|(cookie, _)| *cookie).collect();
    assert_eq!(cookies, [0, 11, 12, 0, 1, 2, 0, 101]);
    for (cookie, verifier) in asked {
        assert_eq!(verifier, if cookie == 0 { [0; 8] } else { [7; 8] });
    }
}

#[test]
fn a_server_that_refuses_each_cookie_is_asked_a_bounded_number_of_times() {
    let mut pages = vec![Page::Of(b"a", 1, false), Page::BadCookie];
    for _ in 0..client::LISTING_RESTARTS_MAX {
        pages.extend([Page::Of(b"a", 1, false), Page::BadCookie]);
    }
    let (names, _) = listed_from(&pages);
    assert_eq!(names.unwrap_err().status(), Some(fs::Status::BadCookie));
    // A refused cookie of 0 does not restart the listing.
    let (names, asked) = listed_from(&[Page::BadCookie]);
    assert_eq!(names.unwrap_err().status(), Some(fs::Status::BadCookie));
    assert_eq!(asked, [(0, [0; 8])]);
}

/// Answers a READDIRPLUS with a page of one name; returns the cookie of the call.
fn answer(fake: &Fake, name: &[u8], next: u64, eof: bool) -> u64 {
    let call = fake.next();
    let args = args_of(&call);
    call.reply(&directory_of(name, next, eof));
    args.cookie
}

/// Reads the next page while the test answers the call for a page.
fn read_page(fake: &Fake, pages: &mut client::Pages, (name, from, next): (&[u8], u64, u64)) {
    std::thread::scope(|scope| {
        let page = scope.spawn(|| pages.next().unwrap().unwrap());
        assert_eq!(answer(fake, name, next, false), from);
        assert_eq!(page.join().unwrap()[0].name, name);
    });
}

#[test]
fn from_the_second_page_on_the_next_page_is_requested_ahead() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let mut pages = mount.pages(mount.root());
    read_page(&fake, &mut pages, (b"a", 0, 11));
    // Many programs read only the first page. Calls arrive in order, so a call for the next page
    // would have arrived before this reply.
    assert!(mount.attributes(mount.root()).is_ok());
    fake.nothing_more();
    read_page(&fake, &mut pages, (b"b", 11, 12));
    // The program has not asked for these pages yet.
    assert_eq!(answer(&fake, b"c", 13, false), 12);
    assert_eq!(pages.next().unwrap().unwrap()[0].name, b"c");
    drop(pages);
    // A page that is no longer wanted does no harm.
    assert_eq!(answer(&fake, b"d", 14, true), 13);
    assert!(mount.attributes(mount.root()).is_ok());
}

#[test]
fn a_page_whose_request_ahead_timed_out_is_requested_again() {
    let fake = Fake::start(1);
    let soft = Settings { soft: true, timeo: Duration::from_secs(4), retrans: 0, ..fake.settings(1) };
    let mount = Mount::with_settings(soft).unwrap();
    let mut pages = mount.pages(mount.root());
    read_page(&fake, &mut pages, (b"a", 0, 11));
    read_page(&fake, &mut pages, (b"b", 11, 12));
    let ahead = fake.next();
    assert_eq!(args_of(&ahead).cookie, 12);
    std::thread::scope(|scope| {
        let page = scope.spawn(|| pages.next().unwrap());
        let again = fake.next();
        assert_ne!(again.xid, ahead.xid, "the first one was never answered");
        assert_eq!(args_of(&again).cookie, 12);
        again.reply(&directory_of(b"c", 13, true));
        assert_eq!(page.join().unwrap().unwrap()[0].name, b"c");
    });
}
