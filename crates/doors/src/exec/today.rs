//! The params of today's methods, decoded into the types of `parlor_vocab`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use parlor_vocab::{
    EnvironmentBase, EnvironmentPolicy, ExecutorRequest, FileAction, FollowLinks, MAX_ID_BYTES, ReadOutput,
    SandboxIntent, StartProcess, StartSequenced, StdioKind, WalkOptions, WorkOrigin,
};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::bounded;
use super::code::FrameError;
use super::decode::{params_object, parse_process_id};
use super::intent::SandboxParam;
use super::uri::{self, UriError};
use super::wire::{ByteChunk, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_SET_VARIABLES, TerminateParams, method};
use crate::json::ValidAny;

/// The member of `initialize` that only today's clients send.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResumeParams {
    /// `None` without the member, `Some(None)` for null.
    #[serde(default, deserialize_with = "present")]
    resume_session_id: Option<Option<String>>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Which session `initialize` asks for: none, a new one, or an earlier one.
pub(super) fn session(params: Option<&RawValue>) -> Result<Option<Option<String>>, FrameError> {
    params_object::<ResumeParams>(params).map(|params| params.resume_session_id)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartParams {
    process_id: String,
    #[serde(deserialize_with = "bounded::list")]
    argv: Vec<String>,
    cwd: String,
    #[serde(deserialize_with = "bounded::map")]
    env: BTreeMap<String, String>,
    tty: bool,
    env_policy: Option<EnvPolicy>,
    #[serde(default)]
    pipe_stdin: bool,
    arg0: Option<String>,
    sandbox: Option<SandboxParam>,
    #[serde(default)]
    enforce_managed_network: bool,
    managed_network: Option<ValidAny>,
    network_proxy: Option<ValidAny>,
    /// Absent for processes that no tool call started. Anything else than an object is ignored, as clients may change it.
    #[serde(default, deserialize_with = "metadata")]
    metadata: Option<Metadata>,
}

/// What a client started a process for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    thread_id: Option<String>,
    tool_call_id: Option<String>,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Metadata>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvPolicy {
    inherit: Inherit,
    ignore_default_excludes: bool,
    #[serde(deserialize_with = "bounded::list")]
    exclude: Vec<String>,
    #[serde(deserialize_with = "bounded::map")]
    set: BTreeMap<String, String>,
    #[serde(deserialize_with = "bounded::list")]
    include_only: Vec<String>,
}

impl EnvPolicy {
    /// The executor compares every variable with every pattern.
    fn check(&self) -> Result<(), FrameError> {
        for (name, patterns) in [("exclude", &self.exclude), ("includeOnly", &self.include_only)] {
            if patterns.len() > MAX_PATTERNS {
                return Err(invalid(format!("envPolicy.{name} has more than {MAX_PATTERNS} patterns")));
            }
            if patterns.iter().any(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
                return Err(invalid(format!(
                    "a pattern in envPolicy.{name} has more than {MAX_PATTERN_BYTES} bytes"
                )));
            }
        }
        if self.set.len() > MAX_SET_VARIABLES {
            return Err(invalid(format!("envPolicy.set has more than {MAX_SET_VARIABLES} variables")));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Inherit {
    All,
    Core,
    None,
}

pub(super) fn start(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let params: StartParams = params_object(params)?;
    let mut argv = params.argv.into_iter();
    let program = argv.next().ok_or_else(|| invalid("argv must not be empty"))?;
    let has_network_rules = params.managed_network.is_some() || params.network_proxy.is_some();
    if params.enforce_managed_network || has_network_rules {
        return Err(FrameError::SandboxRefused);
    }
    let intent = params.sandbox.as_ref().map(SandboxParam::for_process).transpose()?.flatten();
    let start = StartProcess {
        process: parse_process_id(&params.process_id)?,
        program,
        args: argv.collect(),
        arg0: params.arg0,
        folder: uri::to_path(&params.cwd).map_err(|error| invalid(format!("cwd: {error}")))?,
        env: params.env.into_iter().collect(),
        stdio: match (params.tty, params.pipe_stdin) {
            (true, _) => StdioKind::Terminal,
            (false, true) => StdioKind::PipesWithInput,
            (false, false) => StdioKind::Pipes,
        },
        // The executor retains numbered chunks itself.
        retain_bytes: 0,
    };
    params.env_policy.as_ref().map_or(Ok(()), EnvPolicy::check)?;
    let origin = params.metadata.and_then(|metadata| {
        let is_short = |id: &String| (1..=MAX_ID_BYTES).contains(&id.len());
        let thread = metadata.thread_id.filter(is_short)?;
        Some(WorkOrigin { thread, call: metadata.tool_call_id.filter(is_short) })
    });
    let inherit = params.env_policy.map(|policy| EnvironmentPolicy {
        base: match policy.inherit {
            Inherit::All => EnvironmentBase::All,
            Inherit::Core => EnvironmentBase::Core,
            Inherit::None => EnvironmentBase::Empty,
        },
        keep_secrets: policy.ignore_default_excludes,
        exclude: policy.exclude,
        set: policy.set.into_iter().collect(),
        include_only: policy.include_only,
    });
    Ok(ExecutorRequest::StartSequenced(Box::new(StartSequenced { start, inherit, intent, origin })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteOnceParams {
    process_id: String,
    chunk: ByteChunk,
    write_id: String,
}

pub(super) fn write(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let WriteOnceParams { process_id, chunk, write_id } = params_object(params)?;
    if write_id.is_empty() {
        return Err(invalid("writeId must not be empty"));
    }
    if write_id.len() > MAX_ID_BYTES {
        return Err(invalid(format!("writeId has more than {MAX_ID_BYTES} bytes")));
    }
    Ok(ExecutorRequest::WriteOnce { process: parse_process_id(&process_id)?, write_id, bytes: chunk.0 })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignalParams {
    process_id: String,
    /// There is only one.
    #[serde(rename = "signal")]
    _signal: ProcessSignal,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ProcessSignal {
    Interrupt,
}

pub(super) fn signal(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let params: SignalParams = params_object(params)?;
    Ok(ExecutorRequest::InterruptProcess { process: parse_process_id(&params.process_id)? })
}

pub(super) fn terminate(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let params: TerminateParams = params_object(params)?;
    Ok(ExecutorRequest::EndProcess { process: parse_process_id(&params.process_id)? })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadParams {
    process_id: String,
    after_seq: Option<u64>,
    max_bytes: Option<u64>,
    wait_ms: Option<u64>,
}

pub(super) fn read(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let params: ReadParams = params_object(params)?;
    Ok(ExecutorRequest::ReadOutput(ReadOutput {
        process: parse_process_id(&params.process_id)?,
        after: params.after_seq.unwrap_or(0),
        max_bytes: params.max_bytes,
        wait: Duration::from_millis(params.wait_ms.unwrap_or(0)),
    }))
}

/// Params that must be absent, null or an empty object.
pub(super) fn nothing(params: Option<&RawValue>) -> Result<(), FrameError> {
    let text = params.map_or("null", RawValue::get);
    let is_empty_object = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if text == "null" || is_empty_object.is_some_and(|inside| inside.trim_ascii().is_empty()) {
        Ok(())
    } else {
        Err(invalid("this method takes no params"))
    }
}

/// The params of all file methods; each uses some.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileParams {
    path: String,
    follow_symlinks: Option<bool>,
    recursive: Option<bool>,
    force: Option<bool>,
    sandbox: Option<SandboxParam>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentParams {
    data_base64: FileBytes,
}

/// Bytes in base64, decoded without a copy of the text; `None` if it is not base64, which has a code of its own.
struct FileBytes(Option<Vec<u8>>);

impl<'de> Deserialize<'de> for FileBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = FileBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FileBytes, E> {
                Ok(FileBytes(base64_simd::STANDARD.decode_to_vec(text).ok()))
            }
        }
        deserializer.deserialize_str(BytesVisitor)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopyParams {
    source_path: String,
    destination_path: String,
    recursive: bool,
    sandbox: Option<SandboxParam>,
}

#[derive(Deserialize)]
struct WalkParams {
    options: WalkParamOptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WalkParamOptions {
    max_depth: u64,
    max_directories: u64,
    max_entries: u64,
    follow_directory_symlinks: bool,
    #[serde(default)]
    prune_hidden_directories: bool,
}

/// A request about files; `None` if no file method has this name.
pub(super) fn file(name: &str, params: Option<&RawValue>) -> Result<Option<ExecutorRequest>, FrameError> {
    match name {
        method::FS_COPY => return copy(params).map(Some),
        method::FS_OPEN | method::FS_READ_BLOCK | method::FS_WRITE_BLOCK | method::FS_CLOSE => {
            return block(name, params).map(Some);
        }
        _ => {}
    }
    if !method::FILES.contains(&name) {
        return Ok(None);
    }
    let FileParams { path, follow_symlinks, recursive, force, sandbox } = params_object(params)?;
    let intent = file_intent(sandbox.as_ref())?;
    let follow = if follow_symlinks == Some(false) { FollowLinks::No } else { FollowLinks::Yes };
    let recursive = recursive.unwrap_or(true);
    let path = file_path(&path)?;
    let action = match name {
        method::FS_READ_FILE => FileAction::Read { path, follow },
        method::FS_WRITE_FILE => {
            let ContentParams { data_base64 } = params_object(params)?;
            let not_base64 = || FrameError::FileInput("dataBase64 is not base64 with padding".to_owned());
            let bytes = data_base64.0.ok_or_else(not_base64)?;
            FileAction::Write { path, bytes, follow }
        }
        method::FS_CREATE_DIRECTORY => FileAction::CreateFolder { path, recursive, follow },
        method::FS_GET_METADATA => FileAction::Describe { path, follow },
        method::FS_CANONICALIZE => FileAction::Canonicalize { path },
        method::FS_READ_DIRECTORY => FileAction::List { path },
        method::FS_REMOVE => FileAction::Remove { path, recursive, force: force.unwrap_or(true), follow },
        _ => {
            let WalkParams { options } = params_object(params)?;
            let options = WalkOptions {
                max_depth: options.max_depth,
                max_folders: options.max_directories,
                max_entries: options.max_entries,
                follow_folder_links: options.follow_directory_symlinks,
                prune_hidden: options.prune_hidden_directories,
            };
            FileAction::Walk { path, options }
        }
    };
    Ok(Some(ExecutorRequest::File { action, intent }))
}

fn copy(params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let CopyParams { source_path, destination_path, recursive, sandbox } = params_object(params)?;
    let intent = file_intent(sandbox.as_ref())?;
    let (source, destination) = (file_path(&source_path)?, file_path(&destination_path)?);
    Ok(ExecutorRequest::File { action: FileAction::Copy { source, destination, recursive }, intent })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenParams {
    handle_id: String,
    path: String,
    mode: Option<OpenMode>,
    sandbox: Option<SandboxParam>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum OpenMode {
    Read,
    Replace,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadBlockParams {
    handle_id: String,
    offset: u64,
    len: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteBlockParams {
    handle_id: String,
    offset: u64,
    chunk: ByteChunk,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CloseParams {
    handle_id: String,
}

/// A request about an open file.
fn block(name: &str, params: Option<&RawValue>) -> Result<ExecutorRequest, FrameError> {
    let mut intent = None;
    let action = match name {
        method::FS_OPEN => {
            let OpenParams { handle_id, path, mode, sandbox } = params_object(params)?;
            intent = file_intent(sandbox.as_ref())?;
            let (path, replaces) = (file_path(&path)?, mode == Some(OpenMode::Replace));
            FileAction::Open { handle: handle_id, path, replaces, follow: FollowLinks::Yes }
        }
        method::FS_READ_BLOCK => {
            let ReadBlockParams { handle_id, offset, len } = params_object(params)?;
            FileAction::ReadBlock { handle: handle_id, offset, length: len }
        }
        method::FS_WRITE_BLOCK => {
            let WriteBlockParams { handle_id, offset, chunk } = params_object(params)?;
            FileAction::WriteBlock { handle: handle_id, offset, bytes: chunk.0 }
        }
        _ => FileAction::Close { handle: params_object::<CloseParams>(params)?.handle_id },
    };
    Ok(ExecutorRequest::File { action, intent })
}

fn file_intent(sandbox: Option<&SandboxParam>) -> Result<Option<Box<SandboxIntent>>, FrameError> {
    let intent = sandbox.map(SandboxParam::for_files).transpose()?.flatten();
    Ok(intent.map(Box::new))
}

fn file_path(text: &str) -> Result<PathBuf, FrameError> {
    uri::to_path(text).map_err(|error| match error {
        UriError::Foreign(_) => FrameError::FileInput(error.to_string()),
        UriError::NoScheme
        | UriError::OtherScheme(_)
        | UriError::NulByte
        | UriError::EscapedSlash
        | UriError::TooLong { .. } => invalid(error.to_string()),
    })
}

fn invalid(text: impl Into<String>) -> FrameError {
    FrameError::InvalidParams(text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_environment_policy_at_its_limits_is_accepted_and_a_larger_one_is_refused() {
        let is_accepted = |patterns: usize, pattern_bytes: usize, variables: usize| {
            let patterns = vec!["x".repeat(pattern_bytes); patterns];
            let set: BTreeMap<String, &str> = (0..variables).map(|number| (number.to_string(), "")).collect();
            let policy = json!({
                "inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": set,
                "includeOnly": patterns,
            });
            let params = json!({
                "processId": "p", "argv": ["x"], "cwd": "file:///", "env": {}, "tty": false,
                "envPolicy": policy,
            });
            let params = serde_json::value::to_raw_value(&params).unwrap();
            match start(Some(&params)) {
                Ok(_) => true,
                Err(FrameError::InvalidParams(text)) => {
                    assert!(text.contains("more than"), "{text}");
                    false
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert!(is_accepted(MAX_PATTERNS, MAX_PATTERN_BYTES, MAX_SET_VARIABLES));
        assert!(!is_accepted(MAX_PATTERNS + 1, 1, 0));
        assert!(!is_accepted(1, MAX_PATTERN_BYTES + 1, 0));
        assert!(!is_accepted(0, 0, MAX_SET_VARIABLES + 1));
    }
}
