//! Confines a child and everything that it starts. The kernel enforces it; `docs/security.md` lists by which features.
//!
//! [`Sandbox`] says what is allowed; `Plan` is the same for the kernel, prepared before the child exists. The
//! module does not decide who gets which sandbox, and asks nobody.

mod disk;
mod enter;
mod filter;
mod git;
mod holder;
mod plan;
mod proxy;
mod ruleset;
mod secrets;
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::PolicyMode;

pub use disk::{DISK_CHECK_INTERVAL, MIN_FREE_FILES};
pub(crate) use disk::{DiskWatch, Disks};
pub(crate) use enter::enter;
pub(crate) use git::{Guard, is_protected_name};
pub(crate) use holder::NamespaceHolder;
pub(crate) use plan::Plan;
pub(crate) use proxy::ProxyTask;
pub use proxy::{
    MAX_PROXY_CONNECTIONS, PROXY_CONNECT_WAIT, PROXY_HEAD_BYTES, PROXY_HEAD_WAIT, ProxyAddresses,
    ProxyDecision, ProxyRules,
};
pub use support::{SandboxSupport, sandbox_support};

/// The size of `/tmp`, `/var/tmp` and `/dev/shm` in a sandbox, each, in bytes. They are in memory.
pub const SANDBOX_TEMP_BYTES: u64 = 1 << 30;

/// How long to wait for the killed processes of a sandbox to be gone before the exit is reported.
pub const SANDBOX_END_WAIT: Duration = Duration::from_secs(2);

/// What a child may do. Give it to [`spawn_in`](crate::spawn_in).
///
/// All paths are absolute. A path that does not exist is skipped, except for the project. A path that other paths contain
/// can have other rights than they have.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// With [`PolicyMode::Full`] the other fields have no effect.
    pub mode: PolicyMode,
    /// The folder that `Workspace` lets the child write, except for the settings and hooks of its repository.
    pub project: PathBuf,
    /// The folder that the child sees as `/tmp`. `None`: an empty one in memory, gone when the child has ended.
    pub temp_folder: Option<PathBuf>,
    /// More files and folders that the child may write, in every mode.
    pub writable: Vec<PathBuf>,
    /// Files and folders that the child may read although they are in a hidden folder.
    pub readable: Vec<PathBuf>,
    /// Files and folders that the child cannot see: secrets. A path that is also in another list is hidden.
    pub hidden: Vec<PathBuf>,
    /// Files and folders below writable ones that the child cannot write, beside those that a project always protects.
    pub protected: Vec<PathBuf>,
    /// What the child can connect to.
    pub network: SandboxNetwork,
}

/// What a sandboxed child can connect to.
#[derive(Clone, Debug, Default)]
pub enum SandboxNetwork {
    /// Only what listens in its own sandbox.
    #[default]
    None,
    /// Also hosts that the rules allow, through a proxy that the variables `HTTP_PROXY` and `HTTPS_PROXY` name.
    Proxy(Arc<dyn ProxyRules>),
    /// What the user can connect to, except for Unix sockets.
    Open,
}

impl Sandbox {
    /// A sandbox for `project` without a network, which hides the usual secrets in the folder `home`.
    pub fn new(mode: PolicyMode, project: impl Into<PathBuf>, home: Option<&Path>) -> Self {
        Self {
            mode,
            project: project.into(),
            temp_folder: None,
            writable: Vec::new(),
            readable: Vec::new(),
            hidden: secrets::of_user(home),
            protected: Vec::new(),
            network: SandboxNetwork::None,
        }
    }
}
