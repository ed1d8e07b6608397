//! The program under other names: started through a link that is named like another program, parlor behaves as that
//! program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::environment::Environment;
use crate::stdio::{self, Door};
use crate::{acp, loaf, synaps};

/// The names under which parlor acts as another program. `parlor link` creates links with these names.
pub(crate) const PROGRAM_ALIASES: [&str; 4] = ["codex-exec-server", "loaf", "parlor-acp", "synaps"];

/// Behaves as the program that the first of `arguments` names, if it is one of [`PROGRAM_ALIASES`].
pub(crate) fn run(arguments: &[OsString], environment: &Environment) -> Option<anyhow::Result<ExitCode>> {
    let name = Path::new(arguments.first()?).file_name().and_then(OsStr::to_str)?;
    match name {
        // The original program ignores all arguments.
        "codex-exec-server" => Some(stdio::serve(Door::Exec, environment)),
        "synaps" => Some(synaps::serve_as_synaps(arguments, environment)),
        "parlor-acp" => Some(acp::serve_as_acp(arguments, environment)),
        "loaf" => Some(loaf::serve_as_loaf(arguments, environment)),
        _ => None,
    }
}
