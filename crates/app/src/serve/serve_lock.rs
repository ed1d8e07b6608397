//! The lock of a state folder, which only one server can hold, and `serve.json`, the file with the addresses of its
//! doors.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::Serialize;

/// The file in which programs find the addresses of the doors.
const FILE: &str = "serve.json";
/// The file that a server locks for as long as it runs.
const LOCK: &str = "serve.lock";
/// The mode of both files: only their owner may read and write them.
const PRIVATE: u32 = 0o600;

/// The addresses of the open doors, as `serve.json` has them.
#[derive(Serialize)]
pub(super) struct Addresses {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) http: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supex: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supex_repl: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exec: Option<SocketAddr>,
}

/// The lock of a state folder. The kernel releases it when the program ends, however it ends.
pub(crate) struct ServeLock {
    file: PathBuf,
    _lock: File,
}

impl ServeLock {
    /// Locks the folder `home`, which is created if it is missing. Fails if another server has the lock.
    pub(crate) fn take(home: &Path) -> anyhow::Result<Self> {
        let shown = home.display();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .with_context(|| format!("cannot keep state in {shown}"))?;
        let path = home.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE)
            // The lock's rights are changed below; a link could lead to another file.
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => bail!(
                "another parlor serves {shown}{}; end it, or set PARLOR_HOME to another folder",
                pid_in(&home.join(FILE)).map_or(String::new(), |pid| format!(" (process {pid})"))
            ),
            Err(errno) => bail!("cannot lock {}: {errno}", path.display()),
        }
        // Older versions made the file writable for other users, who could then lock it.
        lock.set_permissions(Permissions::from_mode(PRIVATE))
            .with_context(|| format!("cannot change the rights of {}", path.display()))?;
        Ok(Self { file: home.join(FILE), _lock: lock })
    }

    /// Writes the addresses of the open doors to `serve.json`.
    pub(super) fn publish(&mut self, addresses: &Addresses) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct ServeFile<'a> {
            pid: u32,
            #[serde(flatten)]
            addresses: &'a Addresses,
        }
        let mut text = serde_json::to_vec(&ServeFile { pid: std::process::id(), addresses })?;
        text.push(b'\n');
        // Renames a complete file, so that readers never see half of it.
        let temporary = self.file.with_extension("json.new");
        let write = || -> std::io::Result<()> {
            // A file that a crash left behind may have another mode.
            match std::fs::remove_file(&temporary) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut open = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&temporary)?;
            open.write_all(&text)?;
            std::fs::rename(&temporary, &self.file)
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Removes `serve.json`: the doors are closed.
    pub(super) fn withdraw(self) {
        // A user may have removed it.
        let _ = std::fs::remove_file(&self.file);
    }
}

fn pid_in(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    serde_json::from_str::<serde_json::Value>(&text).ok()?.get("pid")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time_has_the_lock_and_publishes_its_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        // Files of an older version, which other users may write to.
        std::fs::create_dir(&home).unwrap();
        for name in ["serve.json.new", LOCK] {
            std::fs::write(home.join(name), "").unwrap();
            std::fs::set_permissions(home.join(name), Permissions::from_mode(0o666)).unwrap();
        }
        let mut lock = ServeLock::take(&home).unwrap();
        let [http, supex] = ["127.0.0.1:18790", "127.0.0.1:9876"].map(|address| address.parse().ok());
        let addresses = Addresses { http, supex, supex_repl: None, exec: None };
        lock.publish(&addresses).unwrap();
        let text = std::fs::read_to_string(home.join(FILE)).unwrap();
        let pid = std::process::id();
        assert_eq!(
            text,
            format!("{{\"pid\":{pid},\"http\":\"127.0.0.1:18790\",\"supex\":\"127.0.0.1:9876\"}}\n")
        );
        for name in [FILE, LOCK] {
            assert_eq!(std::fs::metadata(home.join(name)).unwrap().permissions().mode() & 0o777, PRIVATE);
        }
        let refused = ServeLock::take(&home).err().unwrap().to_string();
        assert!(refused.contains(&format!("process {pid}")) && refused.contains("PARLOR_HOME"), "{refused}");
        lock.withdraw();
        assert!(!home.join(FILE).exists());
        ServeLock::take(&home).unwrap();
    }
}
