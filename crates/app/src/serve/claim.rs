//! The state folder while it is served: one server at a time, and a file that says where its doors are.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;

/// What programs read to find the doors.
const FILE: &str = "serve.json";
/// What says that a server is there, for as long as it lives.
const LOCK: &str = "serve.lock";
/// Both are for their owner alone.
const PRIVATE: u32 = 0o600;

/// Where the doors are. One that is closed is absent.
#[derive(Serialize)]
pub(super) struct Addresses {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) http: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supex: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supex_repl: Option<SocketAddr>,
}

/// The claim to be the server of a state folder. It ends with the program, however that ends.
pub(super) struct ServeLock {
    file: PathBuf,
    _lock: File,
}

impl ServeLock {
    /// Claims the folder, which is made if it is missing.
    pub(super) fn take(home: &Path) -> anyhow::Result<Self> {
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
        // Older versions left it open to others, who could then lock it.
        lock.set_permissions(Permissions::from_mode(PRIVATE))
            .with_context(|| format!("cannot change the rights of {}", path.display()))?;
        Ok(Self { file: home.join(FILE), _lock: lock })
    }

    /// Says where the doors are, now that all of them are open.
    pub(super) fn publish(&mut self, addresses: &Addresses) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Served<'a> {
            pid: u32,
            #[serde(flatten)]
            addresses: &'a Addresses,
        }
        let mut text = serde_json::to_vec(&Served { pid: std::process::id(), addresses })?;
        text.push(b'\n');
        // In one step: whoever finds the file finds all of it.
        let draft = self.file.with_extension("json.new");
        let write = || -> std::io::Result<()> {
            // One that is left over may have other rights.
            match std::fs::remove_file(&draft) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut open = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&draft)?;
            open.write_all(&text)?;
            std::fs::rename(&draft, &self.file)
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// The doors are closed.
    pub(super) fn withdraw(self) {
        // It may be gone already.
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
    fn one_server_at_a_time_says_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        // What a server of an older version has left behind.
        std::fs::create_dir(&home).unwrap();
        for name in ["serve.json.new", LOCK] {
            std::fs::write(home.join(name), "").unwrap();
            std::fs::set_permissions(home.join(name), Permissions::from_mode(0o666)).unwrap();
        }
        let mut claim = ServeLock::take(&home).unwrap();
        let [http, supex] = ["127.0.0.1:18790", "127.0.0.1:9876"].map(|address| address.parse().ok());
        let addresses = Addresses { http, supex, supex_repl: None };
        claim.publish(&addresses).unwrap();
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
        claim.withdraw();
        assert!(!home.join(FILE).exists());
        ServeLock::take(&home).unwrap();
    }
}
