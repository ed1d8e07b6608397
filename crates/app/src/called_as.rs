//! The program under other names: a link called like another program behaves as that program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::environment::Environment;
use crate::stdio::{self, Door};
use crate::{loaf, synaps};

/// The names that mean something. `parlor link` makes them.
pub(crate) const NAMES: [&str; 3] = ["codex-exec-server", "loaf", "synaps"];

/// Behaves as the program that the first of `arguments` names, if it is one of [`NAMES`].
pub(crate) fn serve(arguments: &[OsString], environment: &Environment) -> Option<anyhow::Result<ExitCode>> {
    let name = Path::new(arguments.first()?).file_name().and_then(OsStr::to_str)?;
    match name {
        // The program of this name takes no arguments and ignores any.
        "codex-exec-server" => Some(stdio::serve(Door::Exec, environment)),
        "synaps" => Some(synaps::serve_as_synaps(arguments, environment)),
        "loaf" => Some(loaf::serve_as_loaf(arguments, environment)),
        _ => None,
    }
}
