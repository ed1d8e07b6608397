//! A full disk and a read-only folder, on a real file system.
//!
//! Mounting needs root. Without root, these tests print a note and skip.
#![expect(clippy::disallowed_methods, reason = "mount and umount are programs")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::file_names;
use crate::media::{MAX_MEDIA_BYTES, MediaError, MediaStore};

/// A small file system in memory.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
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
async fn a_full_disk_is_reported_and_no_partial_file_stays() {
    let Some(disk) = Disk::mount("1m") else { return };
    let store = MediaStore::open(disk.path()).unwrap();
    let small = store.put("small", vec![1; 300_000], MAX_MEDIA_BYTES).await.unwrap();
    let error = store.put("large", vec![2; 2_000_000], MAX_MEDIA_BYTES).await.unwrap_err();
    assert!(matches!(error, MediaError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("no room left on the disk"), "{error}");
    assert_eq!(file_names(disk.path()), [small.id.as_str()]);

    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    let error = loop {
        if let Err(error) = upload.write(&[3; 100_000]).await {
            break error;
        }
    };
    assert!(matches!(error, MediaError::Full { .. }), "{error:?}");
    assert_eq!(file_names(disk.path()), [small.id.as_str()], "even while the upload object exists");
    drop(upload);

    // Content that is stored already needs no space, and new content that fits is stored.
    let _ = std::fs::write(disk.path().join("ballast"), vec![0; 2 << 20]);
    store.put("small", vec![1; 300_000], MAX_MEDIA_BYTES).await.unwrap();
    std::fs::remove_file(disk.path().join("ballast")).unwrap();
    store.put("other", vec![4; 300_000], MAX_MEDIA_BYTES).await.unwrap();
}

#[tokio::test]
async fn a_read_only_folder_can_still_be_read() {
    let Some(disk) = Disk::mount("1m") else { return };
    let home = disk.path().join("home");
    let store = MediaStore::open(&home).unwrap();
    let media = store.put("", b"before", MAX_MEDIA_BYTES).await.unwrap();
    disk.remount("ro");
    let error = store.put("", b"after", MAX_MEDIA_BYTES).await.unwrap_err();
    assert!(matches!(error, MediaError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("make the folder and its files writable"), "{error}");
    let elsewhere = MediaStore::open(&disk.path().join("new")).unwrap();
    let error = elsewhere.begin_upload(1).await.err().expect("no folder can be created");
    assert!(matches!(error, MediaError::ReadOnly { .. }), "{error:?}");
    assert_eq!(store.read(&media.id, 10).await.unwrap(), b"before");
    disk.remount("rw");
    store.put("", b"after", MAX_MEDIA_BYTES).await.unwrap();
}
