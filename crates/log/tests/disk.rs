//! A full disk and a read-only file system, with real mounts.
//!
//! Mounting needs root; without it these tests print a line and pass.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(clippy::disallowed_methods, reason = "mount and umount are programs")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use parlor_log::{EventLog, LogError};
use parlor_vocab::Seq;

use common::{assert_intact, new_entry, noise, open, session, texts};

/// A small file system in memory.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted =
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()));
        if !mounted {
            let _ = writeln!(std::io::stderr(), "skipped: a tmpfs cannot be mounted here");
        }
        mounted.then_some(Self(folder))
    }

    fn remount(&self, mode: &str) {
        let options = format!("remount,{mode}");
        assert!(run(Command::new("mount").args(["-o", &options]).arg(self.0.path())));
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[tokio::test]
async fn a_full_disk_is_reported_and_appends_succeed_again_when_space_is_free() {
    let Some(disk) = Disk::mount("4m") else { return };
    let home = disk.path().join("home");
    let log = open(&home).unwrap();
    let (lease, other) =
        (log.acquire(&session("s")).await.unwrap(), log.acquire(&session("t")).await.unwrap());
    log.append(&other, Seq::START, &[new_entry("small")]).await.unwrap();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let mut head = Seq::START;
    let error = loop {
        match log.append(&lease, head, &[new_entry(noise(100_000))]).await {
            Ok(next) => head = next,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("no room left on the disk"), "{error}");
    // Nothing is lost, everything is readable, and a second attempt fails in the same way.
    assert_eq!(texts(&log, "s").await.len() as u64, head.0);
    assert_eq!(texts(&log, "t").await, ["small"]);
    let again = log.append(&lease, head, &[new_entry(noise(100_000))]).await;
    assert!(matches!(again, Err(LogError::Full { .. })), "{again:?}");
    // Dropped while the disk is full: the store releases it now or later.
    drop(other);

    std::fs::remove_file(&ballast).unwrap();
    let next = log.append(&lease, head, &[new_entry("after")]).await.unwrap();
    assert_eq!(next, Seq(head.0 + 1));
    assert_eq!(texts(&log, "s").await.last().unwrap(), "after");
    open(&home).unwrap().acquire(&session("t")).await.expect("the dropped lease was released");
    drop((lease, log));
    assert_intact(&home);
    assert_eq!(texts(&open(&home).unwrap(), "s").await.len() as u64, next.0);
}

#[tokio::test]
async fn small_appends_succeed_on_a_nearly_full_disk_though_a_large_one_in_their_transaction_fails() {
    let Some(disk) = Disk::mount("4m") else { return };
    let home = disk.path().join("home");
    let log = open(&home).unwrap();
    let (big, small) =
        (log.acquire(&session("big")).await.unwrap(), log.acquire(&session("small")).await.unwrap());
    let (new, fitting) = ([new_entry(noise(8 << 20))], [new_entry("fits")]);
    let (refused, done) =
        tokio::join!(log.append(&big, Seq::START, &new), log.append(&small, Seq::START, &fitting));
    assert!(matches!(refused, Err(LogError::Full { .. })), "{refused:?}");
    assert_eq!(done.unwrap(), Seq(1));
    assert_eq!(texts(&log, "small").await, ["fits"]);
    assert!(matches!(log.session(&session("big")).await, Err(LogError::UnknownSession(_))));
}

#[tokio::test]
async fn a_full_disk_is_reported_when_the_log_is_opened() {
    let Some(disk) = Disk::mount("1m") else { return };
    let ballast = disk.path().join("ballast");
    // The write fails, but fills the disk.
    let _ = std::fs::write(&ballast, vec![0; 2 << 20]);
    let error = open(&disk.path().join("home")).err().expect("no room for a database");
    assert!(matches!(error, LogError::Full { .. }), "{error:?}");
    std::fs::remove_file(&ballast).unwrap();
    open(&disk.path().join("home")).unwrap().acquire(&session("s")).await.unwrap();
}

#[tokio::test]
async fn a_read_only_file_system_is_reported_and_the_log_opens_when_it_is_writable_again() {
    let Some(disk) = Disk::mount("4m") else { return };
    let (old, new) = (disk.path().join("old"), disk.path().join("new"));
    let log = open(&old).unwrap();
    let lease = log.acquire(&session("s")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("before")]).await.unwrap();
    drop((lease, log));
    disk.remount("ro");
    for home in [&old, &new] {
        let error = open(home).err().expect("nothing can be written");
        assert!(matches!(error, LogError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("make the folder and its files writable"), "{error}");
    }
    disk.remount("rw");
    assert_eq!(texts(&open(&old).unwrap(), "s").await, ["before"]);
    open(&new).unwrap();
}
