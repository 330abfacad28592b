//! Tests the file of recovery records: restarts, cut and damaged lines, failed writes.

use super::*;

fn record(id: u64, owner: &str) -> RecoveryRecord {
    RecoveryRecord { client: ClientId(id), owner: owner.as_bytes().to_vec(), principal: 7, is_nlm: false }
}

fn owners(file: &RecoveryFile) -> Vec<String> {
    let mut owners: Vec<_> =
        file.reclaimable().into_iter().map(|record| String::from_utf8(record.owner).unwrap()).collect();
    owners.sort();
    owners
}

fn text(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(NAME)).unwrap()
}

#[test]
fn clients_are_remembered_over_a_restart_and_the_server_stays_the_same() {
    let home = tempfile::tempdir().unwrap();
    let mut first = RecoveryFile::open(home.path()).unwrap();
    assert_eq!(first.reclaimable(), []);
    let (identity, epoch) = (first.identity(), first.epoch());
    first.change(&[record(1, "one"), record(2, "two")], &[]).unwrap();
    first.change(&[record(3, "")], &[ClientId(2), ClientId(99)]).unwrap();
    drop(first);
    let second = RecoveryFile::open(home.path()).unwrap();
    assert_eq!((second.identity(), second.epoch()), (identity, epoch + 1));
    assert_eq!(owners(&second), ["", "one"]);
    assert_eq!(second.reclaimable().iter().map(|record| record.principal).collect::<Vec<_>>(), [7, 7]);
}

// RFC 8881 s8.4.3: a client that lost its state once must not reclaim it after the next restart.
#[test]
fn who_has_not_reclaimed_by_the_end_of_the_grace_period_cannot_reclaim_later() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "reclaims"), record(2, "does not")], &[]).unwrap();
    drop(file);
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(11, "reclaims")], &[]).unwrap();
    file.end_grace().unwrap();
    assert_eq!(file.reclaimable(), []);
    file.change(&[record(12, "new")], &[]).unwrap();
    drop(file);
    assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["new", "reclaims"]);
}

#[test]
fn a_restart_within_the_grace_period_goes_on_with_the_clients_of_before() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "one"), record(2, "two")], &[]).unwrap();
    drop(file);
    let mut file = RecoveryFile::open(home.path()).unwrap();
    // One has reclaimed, and a new one has only been noted: it could open nothing.
    file.change(&[record(11, "one"), record(12, "new")], &[]).unwrap();
    drop(file);
    for _ in 0..2 {
        assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["one", "two"]);
    }
}

#[test]
fn a_last_line_that_was_cut_off_is_left_out_wherever_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "one"), record(2, "two")], &[]).unwrap();
    drop(file);
    let whole = text(home.path());
    let last = whole.trim_end().rfind('\n').unwrap() + 1;
    for end in last..whole.len() {
        std::fs::write(home.path().join(NAME), &whole[..end]).unwrap();
        assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["one"], "cut at {end}");
    }
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "one"), record(2, "two")], &[]).unwrap();
    drop(file);
    let whole = text(home.path());
    let refused = |text: &str| {
        std::fs::write(home.path().join(NAME), text).unwrap();
        RecoveryFile::open(home.path()).unwrap_err()
    };
    let lines: Vec<&str> = whole.lines().collect();
    for at in 0..lines.len() {
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed[at] = changed[at].replacen(' ', "  ", 1);
        let error = refused(&format!("{}\n", changed.join("\n")));
        assert!(matches!(error, RecoveryError::Damaged { line, .. } if line == at + 1), "{error}");
    }
    for text in ["", "\n", "trunkline nfs4 clients 2\n", "\u{0}\u{1}\u{2}\n"] {
        assert!(matches!(refused(text), RecoveryError::Damaged { .. }), "{text:?}");
    }
    let error = refused(&whole.replace("clients 2\n", "clients 3\n"));
    assert!(matches!(&error, RecoveryError::Newer { version, .. } if version == "3"), "{error}");
    assert_eq!(text(home.path()), whole.replace("clients 2\n", "clients 3\n"), "a file of others stays");
}

#[test]
fn hosts_of_nlm_are_remembered_beside_clients_and_the_version_before_had_none() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    let host = |id| RecoveryRecord { principal: 0, is_nlm: true, ..record(id, "one") };
    file.change(&[record(1, "one"), host(2), host(3)], &[ClientId(3)]).unwrap();
    drop(file);
    let of_now = RecoveryFile::open(home.path()).unwrap().reclaimable();
    assert_eq!(of_now, [host(2), record(1, "one")]);
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.end_grace().unwrap();
    file.change(&[record(4, "four")], &[]).unwrap();
    drop(file);
    let before = text(home.path()).replace("clients 2\n", "clients 1\n");
    std::fs::write(home.path().join(NAME), before).unwrap();
    assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["four"]);
    assert!(text(home.path()).starts_with("trunkline nfs4 clients 2\n"));
}

#[test]
fn one_server_has_the_file() {
    let home = tempfile::tempdir().unwrap();
    let file = RecoveryFile::open(home.path()).unwrap();
    let refused = RecoveryFile::open(home.path()).unwrap_err();
    assert!(matches!(refused, RecoveryError::InUse { .. }), "{refused}");
    drop(file);
    drop(RecoveryFile::open(home.path()).unwrap());
}

#[test]
fn void_lines_do_not_fill_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "stays")], &[]).unwrap();
    for id in 2..800 {
        file.change(&[record(id, "comes and goes")], &[ClientId(id - 1)].map(|id| ClientId(id.0.max(2))))
            .unwrap();
    }
    assert!(text(home.path()).lines().count() < 2 * VOID_LINES_MAX, "{}", text(home.path()).lines().count());
    drop(file);
    assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["comes and goes", "stays"]);
}

#[test]
fn after_a_failed_write_the_whole_file_is_written() {
    let home = tempfile::tempdir().unwrap();
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "one")], &[]).unwrap();
    // A descriptor that cannot be written to, as when the disk is full.
    file.file = File::open(home.path().join(NAME)).unwrap();
    assert!(file.change(&[record(2, "two")], &[]).is_err());
    file.change(&[], &[]).unwrap();
    drop(file);
    assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["one", "two"]);
}

#[test]
fn another_process_of_a_group_goes_on_in_the_epoch_of_one_that_has_ended() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(RecoveryFile::take_over(home.path()), Err(RecoveryError::Io { .. })), "there is none");
    let mut file = RecoveryFile::open(home.path()).unwrap();
    file.change(&[record(1, "one"), record(2, "two")], &[]).unwrap();
    drop(file);
    let mut first = RecoveryFile::open(home.path()).unwrap();
    first.change(&[record(11, "one")], &[]).unwrap();
    assert!(matches!(RecoveryFile::take_over(home.path()), Err(RecoveryError::InUse { .. })));
    let (identity, epoch) = (first.identity(), first.epoch());
    drop(first);
    // It ended in the middle of a line.
    let whole = text(home.path());
    std::fs::write(home.path().join(NAME), format!("{whole}client 1 2")).unwrap();
    let mut second = RecoveryFile::take_over(home.path()).unwrap();
    assert_eq!((second.identity(), second.epoch()), (identity, epoch));
    assert_eq!(owners(&second), ["one", "two"], "the grace period goes on");
    assert_eq!(text(home.path()), whole);
    second.end_grace().unwrap();
    second.change(&[record(12, "new")], &[]).unwrap();
    drop(second);
    assert_eq!(owners(&RecoveryFile::open(home.path()).unwrap()), ["new", "one"]);
}
