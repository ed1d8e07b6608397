//! The scripts that are played to both programs. None of them needs a model.
//!
//! `{DIR}` is the working folder, `{SESSION}` the first session of the script, and `{FAIL}` a message
//! at which the turn fails.

/// What a parent does with one child, or with several children one after another.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// One entry for each child process.
    pub(crate) runs: &'static [Run],
}

/// One child process.
pub(crate) struct Run {
    pub(crate) args: &'static [&'static str],
    /// After the last step all remaining output is read.
    pub(crate) steps: &'static [Step],
}

/// One action of a parent.
pub(crate) enum Step {
    /// Writes a line.
    Line(&'static str),
    /// Writes these bytes.
    Bytes(&'static [u8]),
    /// Writes a line of `length` bytes: `head`, spaces, `tail`.
    Long { head: &'static str, length: usize, tail: &'static str },
    /// Waits for any frame with this id.
    Answer(&'static str),
    /// Waits for the end of the turn with this id.
    Response(&'static str),
    /// Closes stdin.
    CloseStdin,
}

use Step::{Answer, Bytes, CloseStdin, Line, Long, Response};

const STATE: Step = Line(r#"{"type":"get_state","id":"state"}"#);
const MESSAGES: Step = Line(r#"{"type":"get_messages","id":"messages"}"#);
const END: Step = Line(r#"{"type":"shutdown"}"#);
const FAIL: Step = Line(r#"{"type":"prompt","id":"p","message":"{FAIL}"}"#);

/// A script with one child and no flags.
macro_rules! script {
    ($name:literal: $($step:expr),+ $(,)?) => {
        Script { name: $name, runs: &[Run { args: &["rpc"], steps: &[$($step),+] }] }
    };
}

pub(crate) const SCRIPTS: &[Script] = &[
    script!("close stdin": CloseStdin),
    script!("shutdown": END),
    script!("shutdown with an id": Line(r#"{"type":"shutdown","id":"x"}"#)),
    script!("nothing is read after shutdown": END, STATE),
    script!("state": STATE, END),
    script!("close stdin after a command": STATE, Answer("state"), CloseStdin),
    script!("stats": Line(r#"{"type":"get_session_stats","id":"s"}"#), END),
    script!("messages of a fresh session": MESSAGES, END),
    script!("models": Line(r#"{"type":"get_available_models","id":"m"}"#), END),
    script!("tools": Line(r#"{"type":"tools_list","id":"t"}"#), END),
    script!("tools without an id": Line(r#"{"op":"tools_list","type":"tools_list"}"#), END),
    script!("tools with a null id": Line(r#"{"type":"tools_list","id":null}"#), END),
    script!("abort when idle": Line(r#"{"type":"abort","id":"a"}"#), STATE, END),
    script!("set model": Line(r#"{"type":"set_model","id":"m","model":"zzz"}"#), STATE,
        Line(r#"{"type":"get_session_stats","id":"s"}"#), END),
    script!("set model to one that the peer knows": Line(r#"{"type":"set_model","id":"m","model":"claude-opus-4-6"}"#),
        STATE, Line(r#"{"type":"new_session","id":"n"}"#), Line(r#"{"type":"get_session_stats","id":"s"}"#), END),
    script!("set model to nothing": Line(r#"{"type":"set_model","id":"m","model":""}"#), END),
    script!("new session": Line(r#"{"type":"new_session","id":"n"}"#), STATE, MESSAGES, END),
    script!("new session keeps the model": Line(r#"{"type":"set_model","id":"m","model":"zzz"}"#),
        Line(r#"{"type":"new_session","id":"n"}"#), STATE, END),
    script!("ids are opaque": Line(r#"{"type":"get_state","id":""}"#),
        Line(r#"{"type":"get_state","id":"ä\u0000😀"}"#), Line(r#"{"type":"get_state","id":"auto:1"}"#), END),
    script!("one id twice": STATE, STATE, END),
    script!("more fields and another order": Line(r#" {"extra":[1,{"b":2}],"id":"a","type":"get_state"} "#), END),
    script!("blank lines and carriage returns": Bytes(b"\n   \n\t\r\n\r\n"),
        Bytes(b"{\"type\":\"get_state\",\"id\":\"a\"}\r\n"), END),
    script!("two carriage returns": Bytes(b"{\"type\":\"get_state\",\"id\":\"a\"}\r\r\n"), END),
    script!("not JSON": Line("not json"), STATE, END),
    script!("half a command": Line(r#"{"type":"get_state","id":"a""#), STATE, END),
    script!("not an object": Line(r#""shutdown""#), Line("42"), Line("null"), Line("true"), STATE, END),
    script!("an array": Line("[]"), STATE, END),
    script!("an array that could be a command": Line(r#"["get_state",{"id":"a"}]"#), STATE, END),
    script!("two commands on a line": Line(r#"{"type":"get_state","id":"a"}{"type":"get_state","id":"b"}"#), END),
    script!("byte order mark": Bytes(b"\xef\xbb\xbf{\"type\":\"get_state\",\"id\":\"a\"}\n"), STATE, END),
    script!("not UTF-8": Bytes(b"\xff\xfe\n"), STATE, END),
    script!("no type": Line(r#"{"id":"q"}"#), END),
    script!("a type that is not a string": Line(r#"{"type":7,"id":"q"}"#), END),
    script!("unknown type": Line(r#"{"type":"bogus","id":"q"}"#), STATE, END),
    script!("unknown type without an id": Line(r#"{"type":"bogus"}"#), STATE, END),
    script!("tool call": Line(r#"{"op":"tool_call","name":"x","args":{},"type":"tool_call"}"#), END),
    script!("another case": Line(r#"{"type":"Get_State"}"#), END),
    script!("missing id": Line(r#"{"type":"get_state"}"#), STATE, END),
    script!("missing message": Line(r#"{"type":"prompt","id":"q"}"#), STATE, END),
    script!("an id that is a number": Line(r#"{"type":"get_state","id":7}"#), END),
    script!("an id that is null": Line(r#"{"type":"get_state","id":null}"#), END),
    script!("attachments that are null": Line(r#"{"type":"prompt","id":"q","message":"x","attachments":null}"#),
        STATE, END),
    script!("an id twice": Line(r#"{"type":"get_state","id":"a","id":"b"}"#), END),
    script!("lone surrogate": Line(r#"{"type":"get_state","id":"\ud800"}"#), STATE, END),
    script!("control character": Bytes(b"{\"type\":\"get_state\",\"id\":\"a\x01\"}\n"), STATE, END),
    script!("deep nesting": Long { head: DEEP, length: DEEP.len() + 1, tail: " " }, STATE, END),
    script!("the longest frame": Long { head: r#"{"type":"get_state","#, length: 1 << 20, tail: r#""id":"a"}"# }, END),
    script!("a frame that is too long":
        Long { head: r#"{"type":"get_state","#, length: (1 << 20) + 1, tail: r#""id":"a"}"# }, STATE, END),
    script!("the longest frame and a carriage return":
        Long { head: r#"{"type":"get_state","#, length: (1 << 20) + 1, tail: "\"id\":\"a\"}\r" }, END),
    script!("a very long frame": Long { head: "x", length: 3 << 20, tail: "x" }, STATE, END),
    script!("a very long blank line": Long { head: "", length: 2 << 20, tail: "" }, STATE, END),
    script!("relative attachment": Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"note.txt"}]}"#),
        Answer("p"), STATE, END),
    script!("attachment from the home folder":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"~/note.txt"}]}"#), Answer("p"), END),
    script!("attachment with dots":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"{DIR}/folder/../note.txt"}]}"#),
        Answer("p"), END),
    script!("nine attachments": Line(concat!(
            r#"{"type":"prompt","id":"p","message":"m","attachments":["#,
            r#"{"path":"/a"},{"path":"/a"},{"path":"/a"},{"path":"/a"},{"path":"/a"},{"path":"/a"},{"path":"/a"},"#,
            r#"{"path":"/a"},{"path":"/a"}]}"#)), Answer("p"), END),
    script!("attachment without a path": Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{}]}"#), STATE, END),
    script!("missing attachment":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"{DIR}/none.txt"}]}"#), Answer("p"), END),
    script!("linked attachment":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"{DIR}/link.txt"}]}"#), Answer("p"), END),
    script!("folder as attachment":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"{DIR}/folder"}]}"#), Answer("p"), END),
    script!("empty attachment":
        Line(r#"{"type":"prompt","id":"p","message":"m","attachments":[{"path":"{DIR}/empty.txt"}]}"#), Answer("p"), END),
    script!("huge attachment":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/huge.bin"}]}"#), Answer("p"), END),
    script!("long text as attachment":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/long.txt"}]}"#), Answer("p"), END),
    script!("binary attachment":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/binary.bin"}]}"#), Answer("p"), END),
    script!("control characters in an attachment":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/control.txt"}]}"#), Answer("p"), END),
    script!("broken image":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/broken.png"}]}"#), Answer("p"), END),
    script!("broken document":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/broken.pdf"}]}"#), Answer("p"), END),
    script!("text attachment in a turn that fails":
        Line(r#"{"type":"prompt","id":"p","message":"{FAIL}","attachments":[{"path":"{DIR}/note.txt"}]}"#),
        Response("p"), MESSAGES, END),
    script!("a turn that fails": FAIL, Response("p"), MESSAGES, STATE, END),
    script!("a follow-up that fails": Line(r#"{"type":"follow_up","id":"p","message":"{FAIL}"}"#), Response("p"), END),
    script!("a turn with an id like that of an automatic one":
        Line(r#"{"type":"prompt","id":"auto:1","message":"{FAIL}"}"#), Response("auto:1"), END),
    script!("compact a fresh session": Line(r#"{"type":"compact","id":"c"}"#), Answer("c"), STATE, END),
    Script {
        name: "an unknown model",
        runs: &[Run { args: &["rpc", "--model", "zzz-unknown"], steps: &[STATE, END] }],
    },
    Script {
        name: "all flags",
        runs: &[Run {
            args: &["rpc", "--system", "be brief", "--model", "zzz", "--profile", "work"],
            steps: &[STATE, END],
        }],
    },
    Script {
        name: "instructions that begin with a dash",
        runs: &[Run { args: &["rpc", "--system", "- be brief"], steps: &[END] }],
    },
    Script { name: "unknown flag", runs: &[Run { args: &["rpc", "--bogus"], steps: &[END] }] },
    Script {
        name: "continue nothing",
        runs: &[Run { args: &["rpc", "--continue", "nosuch"], steps: &[END] }],
    },
    Script {
        name: "continue after a turn",
        runs: &[
            Run { args: &["rpc", "--model", "zzz"], steps: &[FAIL, Response("p"), END] },
            Run { args: &["rpc", "--continue", "{SESSION}"], steps: &[STATE, MESSAGES, END] },
        ],
    },
    Script {
        name: "continue with another model",
        runs: &[
            Run { args: &["rpc", "--model", "zzz"], steps: &[FAIL, Response("p"), END] },
            Run { args: &["rpc", "--continue", "{SESSION}", "--model", "yyy"], steps: &[STATE, END] },
        ],
    },
    Script {
        name: "continue with another model that the peer knows",
        runs: &[
            Run { args: &["rpc", "--model", "zzz"], steps: &[FAIL, Response("p"), END] },
            Run {
                args: &["rpc", "--continue", "{SESSION}", "--model", "claude-opus-4-6"],
                steps: &[STATE, END],
            },
        ],
    },
    Script {
        name: "continue a session without messages",
        runs: &[
            Run { args: &["rpc"], steps: &[END] },
            Run { args: &["rpc", "--continue", "{SESSION}"], steps: &[STATE, END] },
        ],
    },
];

/// A command with a field of 200 nested arrays.
const DEEP: &str = concat!(
    r#"{"type":"get_state","id":"a","x":"#,
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    "}"
);
