//! The program to execute, with its arguments, environment and working folder, as C strings for the kernel; searches
//! `PATH`. Prepared before the child exists, because the child may not allocate.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use parlor_vocab::StartProcess;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::{MAX_ARGUMENT_BYTES, SpawnError};

/// The search path when the environment has no `PATH`.
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";
const SHELL: &CStr = c"/bin/sh";

/// A program with its arguments, environment and working folder.
pub(crate) struct Program {
    /// The paths to try, in order.
    pub(crate) candidates: Vec<CString>,
    pub(crate) folder: CString,
    pub(crate) argv: CStringArray,
    pub(crate) envp: CStringArray,
    /// For a script without an interpreter line: the shell, a slot for the path of the script, the arguments.
    pub(crate) shell_argv: CStringArray,
}

impl Program {
    pub(crate) fn new(start: &StartProcess) -> Result<Self, SpawnError> {
        if !start.folder.is_absolute() {
            return Err(SpawnError::RelativeFolder(start.folder.clone()));
        }
        if size_of_arguments(start) > MAX_ARGUMENT_BYTES {
            return Err(SpawnError::Program { program: start.program.clone(), errno: Errno::TOOBIG });
        }
        let folder = c_string(start.folder.as_os_str().as_bytes(), "cwd")?;
        let args: Vec<CString> =
            start.args.iter().map(|arg| c_string(arg.as_bytes(), "argv")).collect::<Result<_, _>>()?;
        let arg0 = c_string(start.arg0.as_ref().unwrap_or(&start.program).as_bytes(), "arg0")?;
        let env = start
            .env
            .iter()
            .map(|(name, value)| c_string(format!("{name}={value}").as_bytes(), "env"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            candidates: candidates(start)?,
            folder,
            shell_argv: CStringArray::new(
                [SHELL.to_owned(), SHELL.to_owned()].into_iter().chain(args.clone()),
            ),
            argv: CStringArray::new([arg0].into_iter().chain(args)),
            envp: CStringArray::new(env),
        })
    }

    /// The path of the shell.
    pub(crate) fn shell(&self) -> &'static CStr {
        SHELL
    }
}

/// Finds the program `name` in the folders of `path`, for programs that parlor itself starts.
///
/// Skips relative folders: they are in the working folder, and a project must not replace the `ruby` that parlor starts.
/// Programs that a client or an agent starts are looked up as usual.
pub fn find_program(name: &Path, path: &OsStr) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let is_program = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    folders.map(|folder| folder.join(name)).find(is_program)
}

/// A list of C strings with the null-terminated array of pointers to them.
pub(crate) struct CStringArray {
    /// Owns the texts of `pointers`. The text of a `CString` does not move when the list does.
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStringArray {
    fn new(texts: impl IntoIterator<Item = CString>) -> Self {
        let texts: Vec<CString> = texts.into_iter().collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { _texts: texts, pointers }
    }

    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// Replaces the second argument: the shell expects the path of the script there.
    pub(crate) fn set_second(&mut self, text: *const c_char) {
        if let Some(second) = self.pointers.get_mut(1) {
            *second = text;
        }
    }
}

/// The size as the kernel counts it: each text with its NUL and a pointer.
fn size_of_arguments(start: &StartProcess) -> usize {
    let texts = start.args.iter().map(String::len);
    let variables = start.env.iter().map(|(name, value)| name.len() + 1 + value.len());
    texts.chain(variables).map(|bytes| bytes + 1 + size_of::<*const c_char>()).sum()
}

fn candidates(start: &StartProcess) -> Result<Vec<CString>, SpawnError> {
    let program = start.program.as_str();
    if program.contains('/') {
        return Ok(vec![c_string(program.as_bytes(), "argv")?]);
    }
    if program.is_empty() {
        return Ok(Vec::new());
    }
    let path = start.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path);
    path.split(':')
        .map(|folder| {
            // An empty part of PATH means the working folder.
            let folder = if folder.is_empty() { "." } else { folder };
            c_string(format!("{folder}/{program}").as_bytes(), "argv")
        })
        .collect()
}

fn c_string(bytes: &[u8], what: &'static str) -> Result<CString, SpawnError> {
    CString::new(bytes).map_err(|_| SpawnError::NulByte(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_absolute_folders_only() {
        let find = |path: &str| find_program(Path::new("sh"), OsStr::new(path));
        let found = find("/nonexistent:relative::.:/bin").expect("every system has one");
        assert_eq!(found, Path::new("/bin/sh"));
        for nowhere in ["", ".", ":", "bin:./bin", "/nonexistent", "/etc"] {
            assert_eq!(find(nowhere), None, "{nowhere:?}");
        }
        assert_eq!(find_program(Path::new("passwd"), OsStr::new("/etc")), None, "a file that is no program");
    }
}
