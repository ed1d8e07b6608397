//! The program on a full disk, and in a folder that is not writable.
//!
//! Only root can mount; without root these tests are skipped and print that.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(clippy::disallowed_methods, reason = "these tests start mount, umount and the program itself")]

mod home;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use home::PARLOR;

/// A small tmpfs.
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
        assert!(run(Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(self.0.path())));
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    fn fill(&self) {
        let ballast = std::fs::File::create(self.path().join("ballast"));
        // If the file cannot even be created, the disk is full already.
        if let Ok(mut ballast) = ballast {
            while ballast.write_all(&[0; 4096]).is_ok() {}
        }
    }

    fn free_space(&self) {
        std::fs::remove_file(self.path().join("ballast")).unwrap();
    }

    fn parlor(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PARLOR);
        command.args(args).env("PARLOR_HOME", self.path().join("state")).current_dir("/");
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must fail, and returns its stderr.
    fn refuses(&self, args: &[&str]) -> String {
        let output = self.parlor(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
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

fn printed_hi(output: &Output) -> bool {
    output.status.success() && output.stdout == b"hi\n"
}

#[test]
fn a_full_disk_is_reported_and_commands_work_again_once_space_is_free() {
    let Some(disk) = Disk::mount("4m") else { return };
    // The disk is full without any session, and then with one.
    for _ in 0..2 {
        disk.fill();
        let printed = disk.refuses(&["chat", "/say hi"]);
        assert!(printed.contains("no room left on the disk"), "{printed}");
        let doctor = disk.parlor(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(1));
        let printed = String::from_utf8(doctor.stdout).unwrap();
        assert!(printed.contains("disk space") && printed.contains("free some"), "{printed}");
        disk.free_space();
        let output = disk.parlor(&["chat", "/say hi"]);
        assert!(printed_hi(&output), "{output:?}");
    }
    let list = disk.parlor(&["sessions", "--json"]);
    assert_eq!(
        String::from_utf8(list.stdout).unwrap().lines().count(),
        2,
        "a refused chat stored no session"
    );
}

#[test]
fn a_disk_that_fills_up_during_a_run_ends_it_with_an_error() {
    let Some(disk) = Disk::mount("4m") else { return };
    assert!(printed_hi(&disk.parlor(&["chat", "/say hi"])));
    let mut command = Command::new(PARLOR);
    command.args(["chat", "/wait 1"]).env("PARLOR_HOME", disk.path().join("state")).current_dir("/");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first output is here, so all events but the end of the run are recorded.
    std::io::Read::read_exact(&mut child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    disk.fill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("cannot record events") && printed.contains("parlor doctor"), "{printed}");
    disk.free_space();
    let sessions = String::from_utf8(disk.parlor(&["sessions", "--json", "--limit", "1"]).stdout).unwrap();
    let session: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let session = session["session"].as_str().unwrap();
    assert!(printed_hi(&disk.parlor(&["chat", "--session", session, "/say hi"])));
    let replay = String::from_utf8(disk.parlor(&["replay", session]).stdout).unwrap();
    assert!(replay.contains("RUN_INTERRUPTED"), "{replay}");
}

#[test]
fn a_read_only_folder_is_reported() {
    let Some(disk) = Disk::mount("4m") else { return };
    assert!(printed_hi(&disk.parlor(&["chat", "/say hi"])));
    disk.remount("ro");
    for args in [&["chat", "/say hi"][..], &["sessions"], &["chat", "--json", "/say hi"]] {
        let printed = disk.refuses(args);
        assert!(printed.contains("make the folder and its files writable"), "{printed}");
    }
    let doctor = disk.parlor(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8(doctor.stdout).unwrap().contains("is not writable"));
    disk.remount("rw");
    assert!(printed_hi(&disk.parlor(&["chat", "/say hi"])));
}
