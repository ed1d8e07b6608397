//! What a door can ask of the workshop, and what it hears: Ruby, the SketchUp behind it, tools.
//!
//! The workshop is one for all callers. What takes time is a [`Work`], and takes its turn.

use std::path::PathBuf;

use crate::{Failure, Stream};

/// Names a call. A request that a client repeats has the same key, and is not carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(pub [u8; 32]);

/// Something that a door wants of the workshop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkshopCommand {
    /// Do something that takes its turn.
    Call {
        /// What a repeat of it has in common with it.
        key: CallKey,
        /// Who wants it.
        caller: Caller,
        /// What.
        work: Box<Work>,
    },
    /// Say where printed text is kept.
    LookAtConsole,
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

/// What takes its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
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
        /// The console's session, as [`WorkshopReply::ConsoleOpened`] named it.
        session: String,
        /// Which of its lines this is, from 1.
        number: u64,
        /// The code.
        code: String,
    },
    /// Begin with a fresh Ruby.
    ReplaceRuby,
    /// Use a tool that needs SketchUp.
    Model(ModelCall),
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

/// The use of a tool that needs SketchUp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// Its name.
    pub tool: &'static str,
    /// Its arguments, a JSON object as text, word by word as the caller gave them.
    pub arguments: String,
    /// Those of the arguments that are paths.
    pub paths: Vec<String>,
}

/// What the workshop answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkshopReply {
    /// Ruby has evaluated something.
    Evaluated(Evaluated),
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
    /// This needs SketchUp, and there is none.
    NoSketchUp,
    /// SketchUp has answered.
    Model(Result<String, ModelFailure>),
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
    Tools(Vec<ToolEntry>),
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
pub struct Evaluated {
    /// The value as text, or why there is none.
    pub outcome: Result<String, RubyFailure>,
    /// What was printed meanwhile, in order.
    pub printed: Vec<(Stream, String)>,
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

/// Why SketchUp has not done it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFailure {
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
pub struct ToolEntry {
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
