//! Reads files that hold one secret.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};

/// The secret in `file`, without the end of its line. `what` and `setting` are for error messages, which never have the
/// secret.
pub(crate) fn read(file: &Path, max_bytes: u64, what: &str, setting: &str) -> anyhow::Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|open| open.take(max_bytes + 1).read_to_string(&mut text));
    read.with_context(|| format!("cannot read {what} in {shown} ({setting})"))?;
    if text.len() as u64 > max_bytes {
        bail!("{shown} is larger than {max_bytes} bytes; write only {what} to it ({setting})");
    }
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        bail!("{shown} is empty; write {what} to it ({setting})");
    }
    Ok(secret.to_owned())
}
