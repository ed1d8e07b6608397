//! The `shell` tool: runs a command.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, ProcessId, StartProcess, StdioKind, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::{failure, invalid};
use crate::input::{decode, within};
use crate::shell::foreground;
use crate::tool::{Tool, ToolContext};

/// How long a foreground command may take if the input has no `timeout_ms`.
pub const SHELL_TIMEOUT: Duration = Duration::from_mins(2);
/// The largest `timeout_ms` of a foreground command.
pub const SHELL_TIMEOUT_MAX: Duration = Duration::from_mins(20);
/// The longest command in bytes: the kernel's limit for one argument.
pub const COMMAND_BYTES: usize = 128 * 1024 - 1;

/// Redirects stderr to stdout before the command starts, so that all output arrives in the order in which the command
/// wrote it. Two pipes would lose the order.
const JOIN_OUTPUTS: &str = r#"exec "$0" -c "$1" 2>&1"#;
const SH: &str = "/bin/sh";

/// Runs commands through a shell.
///
/// [`Tool::call`] must be polled on threads that live as long as the server, such as a runtime's workers: the kernel sends
/// SIGTERM to the children of a thread that ends.
#[derive(Clone, Debug)]
pub struct ShellTool {
    program: String,
}

impl Default for ShellTool {
    fn default() -> Self {
        Self { program: SH.to_owned() }
    }
}

impl ShellTool {
    /// Uses `program` as the shell, such as `/bin/bash`. It must accept `-c`.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellInput {
    command: String,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    tty: bool,
    #[serde(default)]
    background: bool,
}

#[async_trait]
impl Tool for ShellTool {
    fn name(&self) -> &str {
        "shell"
    }

    fn title(&self) -> Option<&str> {
        Some("Run a command")
    }

    fn description(&self) -> &str {
        "Runs a shell command and returns its output, stdout and stderr together, and its exit code. \
         What it started in its process group ends with it. For servers and other things that go on, set background: the \
         call returns at once with an id for the processes tool."
    }

    fn schema(&self) -> Value {
        let (timeout, max) = (SHELL_TIMEOUT.as_millis() as u64, SHELL_TIMEOUT_MAX.as_millis() as u64);
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, as for sh -c. Its standard input is empty."},
                "cwd": {"type": "string", "default": ".", "description": "The folder to run in; the working folder if absent."},
                "env": {
                    "type": "object", "additionalProperties": {"type": "string"},
                    "description": "Variables to add to the environment."
                },
                "timeout_ms": {
                    "type": "integer", "minimum": 1, "maximum": max, "default": timeout,
                    "description": "When to end it. Not for background commands."
                },
                "tty": {"type": "boolean", "description": "Run it on a terminal, for programs that insist on one."},
                "background": {"type": "boolean", "description": "Leave it running and return an id at once."},
            },
            "required": ["command"],
            "additionalProperties": false,
        })
    }

    fn access(&self, input: &str) -> ToolAccess {
        let Ok(input) = decode::<ShellInput>(self, input) else {
            return ToolAccess::new(ToolEffect::Confined, input);
        };
        // In another folder `make` does something else, and variables such as PATH choose any program.
        let is_plain_command = input.env.is_empty() && input.cwd.is_none();
        let mut detail = input.command.clone();
        input.env.iter().for_each(|(name, value)| detail.push_str(&format!("\nwith {name}={value}")));
        input.cwd.iter().for_each(|cwd| detail.push_str(&format!("\nin {cwd}")));
        let access = ToolAccess::new(ToolEffect::Confined, detail);
        ToolAccess { command: Some(input.command), is_plain_command, ..access }
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let input: ShellInput = decode(self, input)?;
        let timeout = timeout(&input)?;
        if input.command.len() > COMMAND_BYTES {
            let bytes = input.command.len();
            let message = format!(
                "a command of {bytes} bytes is longer than the limit of {COMMAND_BYTES}; write it to a file first"
            );
            return Err(failure(FailureCode::TooLarge, message));
        }
        check_names(&input.env)?;
        let cwd = input.cwd.clone().unwrap_or_else(|| ".".to_owned());
        let folder =
            context.read_blocking(move |context| context.policy.open_folder(&context.folder, &cwd)).await?;
        let start = self.start(&input, context, &folder.fd);
        let shown = folder.path.display().to_string();
        // `folder` must stay open until the child has entered it, which happens in the calls below.
        if input.background {
            let id = context.background.start(&start, &input.command, &shown, context)?;
            let hint = format!("{{\"operation\": \"read\", \"id\": \"{id}\"}}");
            return Ok(ToolOutput::text(format!(
                "started in the background as `{id}`; processes {hint} shows its output"
            )));
        }
        foreground::run(&start, timeout, context, &shown).await
    }
}

impl ShellTool {
    fn start(&self, input: &ShellInput, context: &ToolContext, folder: &OwnedFd) -> StartProcess {
        let mut env: Vec<(String, String)> = context.env.to_vec();
        env.retain(|(name, _)| !input.env.contains_key(name));
        env.extend(input.env.iter().map(|(name, value)| (name.clone(), value.clone())));
        let (program, args, stdio) = if input.tty {
            (self.program.clone(), vec!["-c".to_owned(), input.command.clone()], StdioKind::Terminal)
        } else {
            let args = ["-c", JOIN_OUTPUTS, &self.program, &input.command].map(str::to_owned).to_vec();
            (SH.to_owned(), args, StdioKind::Pipes)
        };
        StartProcess {
            process: ProcessId::parse("shell").expect("a short id"),
            program,
            args,
            arg0: None,
            // The folder that the policy opened, even if its path leads elsewhere by now. The child inherits the
            // descriptor until it executes the program.
            folder: PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())),
            env,
            stdio,
            // The receiver of the reports keeps the output.
            retain_bytes: 0,
        }
    }
}

fn timeout(input: &ShellInput) -> Result<Duration, Failure> {
    if input.background && input.timeout_ms.is_some() {
        return Err(invalid("`timeout_ms` is not for background commands; stop them by the processes tool"));
    }
    let (default, max) = (SHELL_TIMEOUT.as_millis() as usize, SHELL_TIMEOUT_MAX.as_millis() as usize);
    Ok(Duration::from_millis(within("timeout_ms", input.timeout_ms, default, max)? as u64))
}

fn check_names(env: &BTreeMap<String, String>) -> Result<(), Failure> {
    match env.keys().find(|name| name.is_empty() || name.contains('=')) {
        Some(name) => Err(invalid(format!("`{name}` cannot be the name of a variable"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<ShellInput>(&ShellTool::default());
    }

    #[test]
    fn a_command_with_variables_or_a_folder_is_not_plain() {
        let is_plain = |input: &str| ShellTool::default().access(input).is_plain_command;
        assert!(is_plain(r#"{"command":"make","tty":true}"#));
        for input in [r#"{"command":"make","cwd":"sub"}"#, r#"{"command":"make","env":{"PATH":"x"}}"#] {
            assert!(!is_plain(input), "{input}");
        }
    }

    #[test]
    fn the_timeout_has_a_default_and_a_maximum() {
        let input = |text: &str| serde_json::from_str::<ShellInput>(text).unwrap();
        assert_eq!(timeout(&input(r#"{"command":""}"#)), Ok(SHELL_TIMEOUT));
        let max = SHELL_TIMEOUT_MAX.as_millis();
        assert_eq!(
            timeout(&input(&format!(r#"{{"command":"","timeout_ms":{max}}}"#))),
            Ok(SHELL_TIMEOUT_MAX)
        );
        let over = max + 1;
        assert!(timeout(&input(&format!(r#"{{"command":"","timeout_ms":{over}}}"#))).is_err());
        assert!(timeout(&input(r#"{"command":"","timeout_ms":1,"background":true}"#)).is_err());
    }

    #[test]
    fn variables_of_the_input_override_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let mut context = ToolContext::new(folder.path()).unwrap();
        context.env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into();
        let input: ShellInput = serde_json::from_str(r#"{"command":"","env":{"B":"3"}}"#).unwrap();
        let fd = OwnedFd::from(std::fs::File::open("/").unwrap());
        let start = ShellTool::default().start(&input, &context, &fd);
        assert_eq!(start.env, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "3".to_owned())]);
    }
}
