//! Keeps space free on the disks that a sandboxed command writes. The kernel limits the size of a file, but not how many
//! files a user writes, so parlor looks at the free space while the command runs, and ends it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, StatVfs, fstat, fstatvfs};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

/// How often to look at the free space. A fast disk takes about a gigabyte in this time.
pub const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How many files can still be created on a disk, at least.
pub const MIN_FREE_FILES: u64 = 10_000;

/// Of a disk that has less free than the limit already, a command may use one part of this many.
const PART_OF_FULL_DISK: u64 = 16;

/// The disks on which a command may write, as they were when it started.
#[derive(Debug)]
pub(crate) struct Disks(Vec<Disk>);

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    folder: OwnedFd,
    min_bytes: u64,
    min_files: u64,
}

impl Disks {
    /// The disks of `folders`, on which at least `limit` bytes are to stay free. Folders that cannot be opened are left out.
    pub(super) fn of(folders: impl IntoIterator<Item = PathBuf>, limit: u64) -> Self {
        let mut disks: Vec<(u64, Disk)> = Vec::new();
        for path in folders {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let Ok(folder) = rustix::fs::open(&path, flags, Mode::empty()) else { continue };
            let (Ok(stat), Ok(space)) = (fstat(&folder), fstatvfs(&folder)) else { continue };
            // A file system without a size, such as /proc.
            if space.f_blocks == 0 || disks.iter().any(|(device, _)| *device == stat.st_dev) {
                continue;
            }
            let min_bytes = least(free_bytes(&space), limit);
            // Some file systems create as many files as fit.
            let min_files = if space.f_files == 0 { 0 } else { least(space.f_favail, MIN_FREE_FILES) };
            disks.push((stat.st_dev, Disk { path, folder, min_bytes, min_files }));
        }
        Self(disks.into_iter().map(|(_, disk)| disk).collect())
    }

    /// What a disk lacks, if one does.
    fn shortage(&self) -> Option<String> {
        self.0.iter().find_map(|Disk { path, folder, min_bytes, min_files }| {
            let space = fstatvfs(folder).ok()?;
            let lacks = if free_bytes(&space) < *min_bytes {
                format!("less than {} MiB free", min_bytes.div_ceil(1 << 20))
            } else if space.f_favail < *min_files {
                format!("room for fewer than {min_files} files")
            } else {
                return None;
            };
            Some(format!(
                "the command was ended because the disk of {} has {lacks}; free some space there, or lower \
                 [tools] min_free_disk",
                path.display()
            ))
        })
    }
}

fn free_bytes(space: &StatVfs) -> u64 {
    space.f_bavail.saturating_mul(space.f_frsize)
}

/// What must stay free of `free`.
fn least(free: u64, limit: u64) -> u64 {
    limit.min(free - free / PART_OF_FULL_DISK)
}

/// Kills everything in a sandbox when a disk gets too full. Stops watching when dropped.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    task: JoinHandle<()>,
    reason: Arc<OnceLock<String>>,
}

impl DiskWatch {
    /// Watches `disks` for the sandbox whose first process is `holder`. Call it within a tokio runtime.
    pub(crate) fn start(disks: Disks, holder: OwnedFd) -> Self {
        let reason = Arc::new(OnceLock::new());
        let found = Arc::clone(&reason);
        let disks = Arc::new(disks);
        let task = tokio::spawn(async move {
            loop {
                sleep(DISK_CHECK_INTERVAL).await;
                let disks = Arc::clone(&disks);
                // A disk over a network can hang.
                if let Ok(Some(shortage)) = spawn_blocking(move || disks.shortage()).await {
                    let _ = found.set(shortage);
                    // An error means that the holder has ended.
                    let _ = pidfd_send_signal(&holder, Signal::KILL);
                    return;
                }
            }
        });
        Self { task, reason }
    }

    /// Why it has ended the sandbox, if it has.
    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.get().cloned()
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_may_still_be_used_a_little() {
        assert_eq!(least(10 << 30, 1 << 30), 1 << 30);
        assert_eq!(least(1 << 20, 1 << 30), (1 << 20) - (1 << 16));
        assert_eq!(least(0, 1 << 30), 0);
    }

    #[test]
    fn folders_of_one_disk_are_watched_once_and_a_full_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let mut disks = Disks::of([folder.path().to_path_buf(), other, "/no/such".into()], 0);
        assert_eq!(disks.0.len(), 1);
        assert_eq!(disks.shortage(), None);
        disks.0[0].min_bytes = u64::MAX;
        let shortage = disks.shortage().unwrap();
        assert!(shortage.contains(folder.path().to_str().unwrap()), "{shortage}");
        assert!(shortage.contains("MiB free") && shortage.contains("min_free_disk"), "{shortage}");
        (disks.0[0].min_bytes, disks.0[0].min_files) = (0, u64::MAX);
        assert!(disks.shortage().unwrap().contains("files"));
    }
}
