//! Collects everything that the program writes, so that a test can search it for secrets.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::path::Path;
use std::process::Output;

/// Outputs and files, each with a name for error messages.
#[derive(Default)]
pub(crate) struct Outputs(pub(crate) Vec<(String, Vec<u8>)>);

impl Outputs {
    pub(crate) fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((name.into(), bytes.into()));
    }

    pub(crate) fn add_command(&mut self, command: &str, output: Output) {
        self.add(format!("stdout of {command}"), output.stdout);
        self.add(format!("stderr of {command}"), output.stderr);
    }

    /// Adds all files below a folder, except the store of secrets.
    pub(crate) fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("secrets") {
                self.add_files(&path);
            } else if path.is_file() {
                self.add(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }

    /// The names of all outputs that contain a text.
    pub(crate) fn find(&self, text: &str) -> Vec<&str> {
        let contains = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| contains(bytes)).map(|(name, _)| name.as_str()).collect()
    }
}
