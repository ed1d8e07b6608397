//! Requests for Ruby, an upstream runtime and tools without a session, and their replies.
//!
//! All connections share one Ruby. Anything that takes time is a [`RubyJob`], and jobs take turns.

use std::path::PathBuf;

use crate::{Failure, OutputStream};

/// Names a call. A request that a client repeats has the same key, and is not carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(pub [u8; 32]);

/// A request to the Ruby backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyRequest {
    /// Do something that takes its turn.
    Call {
        /// What a repeat of it has in common with it.
        key: CallKey,
        /// Who wants it.
        caller: Caller,
        /// What.
        job: Box<RubyJob>,
    },
    /// Say where printed text is kept.
    DescribeConsole,
    /// Begin a session of a console.
    OpenConsole {
        /// The process at the other end, if it said which.
        pid: Option<u64>,
    },
    /// Say which tools of parlor itself there are.
    ListTools,
}

/// Who makes a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The agent it works for, as it said.
    pub agent: String,
    /// Its project's folder: files there may be used too.
    pub workspace: Option<String>,
}

/// Work that takes its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyJob {
    /// Evaluate code in a scope of its own.
    Snippet {
        /// The code.
        code: String,
    },
    /// Evaluate a file at the top level.
    File {
        /// Its path, as the caller gave it.
        path: String,
    },
    /// Evaluate what was typed into a console.
    Line {
        /// The console's session, as [`RubyReply::ConsoleOpened`] named it.
        session: String,
        /// Which of its lines this is, from 1.
        number: u64,
        /// The code.
        code: String,
    },
    /// Begin with a fresh Ruby.
    ReplaceRuby,
    /// Call a tool of the upstream runtime.
    Upstream(UpstreamCall),
    /// Say what is in the model at its top level.
    ListResources,
    /// Use one of parlor's own tools.
    Tool {
        /// Its name.
        name: String,
        /// Its input, a JSON object as text.
        input: String,
    },
}

/// A call of a tool of the upstream runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamCall {
    /// Its name.
    pub tool: &'static str,
    /// Its arguments, a JSON object as text, word by word as the caller gave them.
    pub arguments: String,
    /// Those of the arguments that are paths.
    pub paths: Vec<String>,
}

/// The reply to a [`RubyRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RubyReply {
    /// Ruby has evaluated something.
    Evaluated(EvaluationResult),
    /// There is a fresh Ruby, or why there is none.
    RubyReplaced(Result<(), RubyFailure>),
    /// The path leads out of the allowed folders.
    PathRefused {
        /// The path, as the caller gave it.
        path: String,
    },
    /// The path is none.
    PathInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such file.
    FileMissing {
        /// The path, as the caller gave it.
        path: String,
    },
    /// The file is there and cannot be read.
    FileUnreadable {
        /// The path, as the caller gave it.
        path: String,
        /// Why.
        reason: String,
    },
    /// This needs an upstream runtime, and none is configured.
    NoUpstream,
    /// The upstream runtime has answered.
    Upstream(Result<String, UpstreamError>),
    /// Where printed text is kept.
    Console(ConsoleLog),
    /// A console's session has begun.
    ConsoleOpened {
        /// Its name.
        session: String,
    },
    /// The folder of a console's session cannot be made.
    ConsoleRefused {
        /// Why.
        reason: String,
    },
    /// Parlor's own tools; none at all where they are switched off.
    Tools(Vec<ToolInfo>),
    /// What came of one of them.
    Tool(Result<ToolOutput, Failure>),
    /// No tool of that name.
    UnknownTool {
        /// The name.
        name: String,
    },
}

/// What came of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationResult {
    /// The value as text, or why there is none.
    pub outcome: Result<String, RubyFailure>,
    /// What was printed meanwhile, in order.
    pub printed: Vec<(OutputStream, String)>,
    /// How many printed bytes came after these and were not kept.
    pub cut: u64,
    /// How the Ruby of earlier calls was lost, if that has not been told yet.
    pub lost_before: Option<String>,
}

/// Why Ruby has no value to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyFailure {
    /// What kind of failure it is.
    pub kind: RubyFailureKind,
    /// What to tell people.
    pub message: String,
    /// The exception's class.
    pub class: Option<String>,
    /// The file in which it was raised.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u64>,
    /// The way there, the innermost first.
    pub backtrace: Vec<String>,
    /// What can be done about it.
    pub hint: Option<String>,
}

/// Kinds of failures of Ruby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RubyFailureKind {
    /// The code raised an exception.
    Raised,
    /// The code is no Ruby.
    Syntax,
    /// The code ran and was cut short, or its value cannot be given: time, memory, size, a crash.
    Broken,
    /// The code did not run: there is no Ruby, or no room.
    Unavailable,
}

/// Why the upstream runtime has not done it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// It said so.
    Refused {
        /// Its number for it.
        code: i64,
        /// Its words.
        message: String,
        /// What it added, a JSON object as text.
        data: Option<String>,
    },
    /// It could not be reached. Nothing was done.
    Unreachable {
        /// Why.
        reason: String,
    },
    /// It was reached and gave no answer. What was asked may have been done.
    Unanswered {
        /// What happened instead.
        reason: String,
    },
}

/// Where printed text is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLog {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
}

/// One of parlor's own tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its input, as text.
    pub schema: String,
}

/// What one of parlor's own tools brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// What there is to read.
    pub text: String,
    /// What there is to see: media types and files.
    pub images: Vec<(String, Vec<u8>)>,
}
