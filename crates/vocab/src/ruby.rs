//! Requests to the Ruby backend, which also calls an upstream runtime and tools, and its replies.
//!
//! All connections share one Ruby process. Anything that takes time is a [`RubyJob`]; jobs run one after another.

use std::path::PathBuf;

use crate::{Failure, OutputStream, ToolInfo, ToolOutput};

/// Identifies a call by its client, id and content. A repetition has the same key, and so may a call of another client
/// that describes itself in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(pub [u8; 32]);

/// How a call recognizes an earlier one that it repeats. It gets the answer of a call with the same key that is not
/// delivered yet, and does not run, if that call has the same nonce, or if its client has hung up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatKey {
    /// Equal for a request and its repetitions.
    pub call: CallKey,
    /// The secret that the server gave to this client and to no other, if the client asked for one.
    pub nonce: Option<String>,
}

/// A request to the Ruby backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyRequest {
    /// Runs a job when its turn comes.
    Call {
        /// How the call recognizes an earlier one that it repeats. `None` if it never repeats one.
        repeat: Option<RepeatKey>,
        /// The client that makes the call.
        caller: Caller,
        /// The work to do.
        job: Box<RubyJob>,
    },
    /// Returns the location of the file with printed text.
    DescribeConsole,
    /// Opens a console session.
    OpenConsole {
        /// The process id of the console's client, if the client sent it.
        pid: Option<u64>,
    },
    /// Lists parlor's own tools.
    ListTools,
}

/// The client that makes a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The agent's name, as the client sent it.
    pub agent: String,
    /// The client's project folder. Calls may use files in it, in addition to the configured folders.
    pub workspace: Option<String>,
}

/// Work that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyJob {
    /// Evaluates code in a scope of its own.
    Snippet {
        /// Ruby source text.
        code: String,
    },
    /// Evaluates a file at the top level.
    File {
        /// The path, as the client gave it.
        path: String,
    },
    /// Evaluates a line that was typed into a console.
    ConsoleLine {
        /// The console session from [`RubyReply::ConsoleOpened`].
        session: String,
        /// The number of the line in its console session, from 1.
        number: u64,
        /// Ruby source text.
        code: String,
    },
    /// Replaces the Ruby process by a new one, without the state of earlier calls.
    RestartRuby,
    /// Calls a tool of the upstream runtime.
    Upstream(UpstreamCall),
    /// Lists the top-level contents of the upstream runtime's model.
    ListResources,
    /// Asks the upstream runtime whether it is running. Does not wait for the jobs before it.
    PingUpstream,
    /// Calls one of parlor's own tools.
    Tool {
        /// The name of a tool in parlor's toolbox.
        name: String,
        /// The tool's input: a JSON object as text.
        input: String,
    },
}

/// A call of an upstream tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamCall {
    /// The name of the tool in the upstream runtime.
    pub tool: &'static str,
    /// The arguments: a JSON object as text, exactly as the client sent it.
    pub arguments: String,
    /// The values in `arguments` that are paths, which parlor checks before the call.
    pub paths: Vec<String>,
}

/// The reply to a [`RubyRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyReply {
    /// Ruby evaluated the code.
    Evaluated(EvaluationResult),
    /// Ruby was restarted, or why it could not be.
    RubyRestarted(Result<(), RubyFailure>),
    /// The path is outside of the allowed folders.
    PathRefused {
        /// The path, as the client gave it.
        path: String,
    },
    /// The text is not a usable path.
    PathInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The file does not exist.
    FileMissing {
        /// The path, as the client gave it.
        path: String,
    },
    /// The file exists but cannot be read.
    FileUnreadable {
        /// The path, as the client gave it.
        path: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The request needs an upstream runtime, and none is configured.
    NoUpstream,
    /// The upstream runtime's answer, as JSON text.
    Upstream(Result<String, UpstreamError>),
    /// The location of the file with printed text.
    Console(ConsoleLog),
    /// The console session is open.
    ConsoleOpened {
        /// The name to use in [`RubyJob::ConsoleLine`].
        session: String,
    },
    /// The console session's folder cannot be created.
    ConsoleRefused {
        /// The error of the operating system.
        reason: String,
    },
    /// Parlor's own tools; empty if they are switched off.
    Tools(Vec<ToolInfo>),
    /// The result of one of parlor's own tools.
    Tool(Result<ToolOutput, Failure>),
    /// Parlor has no such tool.
    UnknownTool {
        /// The name that the client sent.
        name: String,
    },
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationResult {
    /// The value as text, or why there is none.
    pub outcome: Result<String, RubyFailure>,
    /// What the code printed, in order.
    pub printed: Vec<(OutputStream, String)>,
    /// How many printed bytes are missing at the end of `printed`.
    pub omitted_bytes: u64,
    /// Why the Ruby process of earlier calls is gone, and with it their state. Reported once.
    pub restart_reason: Option<String>,
}

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyFailure {
    /// An exception, a syntax error, an aborted evaluation, or no Ruby at all.
    pub kind: RubyFailureKind,
    /// A text for people.
    pub message: String,
    /// The exception's class.
    pub class: Option<String>,
    /// The file in which the exception was raised.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u64>,
    /// The stack frames, innermost first.
    pub backtrace: Vec<String>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// The kind of a [`RubyFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RubyFailureKind {
    /// The code raised an exception.
    Raised,
    /// The code has a syntax error.
    Syntax,
    /// The code ran, but hit a limit of time, memory or size, or Ruby crashed.
    Aborted,
    /// The code did not run: Ruby cannot be started, or too many calls wait.
    Unavailable,
}

/// Why an upstream call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// The upstream runtime answered with an error.
    Refused {
        /// The JSON-RPC error code.
        code: i64,
        /// The JSON-RPC error message.
        message: String,
        /// The JSON-RPC error data, as JSON text.
        data: Option<String>,
    },
    /// The upstream runtime is busy with another call, so it cannot answer a ping.
    Busy,
    /// The upstream runtime could not be reached. The call was not carried out.
    Unreachable {
        /// The error in words for people.
        reason: String,
    },
    /// The upstream runtime was reached but did not answer. It may have carried out the call.
    Unanswered {
        /// The error in words for people.
        reason: String,
    },
}

/// The location of the file with printed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLog {
    /// The file; `None` if printed text is not saved.
    pub file: Option<PathBuf>,
}
