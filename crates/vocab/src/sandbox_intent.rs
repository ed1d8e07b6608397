//! What a client of the exec door allows a process or a file access.

use std::path::PathBuf;

/// Restricts a process or a file access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxIntent {
    /// The rule with the longest path that contains a file decides about it. A file without a rule cannot be accessed.
    pub rules: Vec<PathRule>,
    /// The folder that the client works in.
    pub project: PathBuf,
    /// Whether a process may use the network.
    pub allows_network: bool,
}

/// What may be done with a file, or with a folder and all that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// An absolute path without `.` and `..`.
    pub path: PathBuf,
    /// What may be done.
    pub access: PathAccess,
    /// Whether the rule has no effect if the path does not exist. Otherwise it must hold for what comes into being there.
    pub skips_missing: bool,
}

/// What a [`PathRule`] allows. Each kind includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    /// Nothing.
    Denied,
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}
