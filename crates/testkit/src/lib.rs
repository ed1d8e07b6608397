//! Plays transcripts: conversations with parlor as text files, checked frame by frame.
//!
//! A transcript is a file in `tests/transcripts/<door>/`. The same file is played against a machine in memory and against
//! the real program over its real transport; both implement [`Peer`]. All that this crate knows about a door is in its
//! [`Door`]. It is only ever a dev-dependency.
//!
//! # The format
//!
//! UTF-8 text, one case per file. The first line is `# ` and what the case shows. These lines follow:
//!
//! | line | meaning |
//! |---|---|
//! | `> TEXT` | the client sends TEXT and a newline; `>` alone is a blank line |
//! | `>- TEXT` | the client sends TEXT without a newline |
//! | `>x 7b ff 0a` | the client sends these bytes |
//! | `>* 1048577 78` | the client sends the byte 78 this many times |
//! | `>eof` | the client closes its sending side |
//! | `>again ARGS` | the connection ends as described below, and another one begins with the same folders, with ARGS added to the command line |
//! | `~ 60s` | this much time passes; only in memory, where time is simulated |
//! | `< PATTERN` | the next frame from parlor matches |
//! | `<? PATTERN` | adjacent lines of this kind are a set: the next frames match them in any order. Any other line ends the set, even a blank one or a comment |
//! | `<end` | parlor closes its side and exits successfully, and sends no frame before that |
//! | `<fail TEXT` | the same, but parlor fails, and TEXT is in its exit status or its stderr |
//! | `#! args ARGS` | adds arguments to the command line |
//! | `#! env NAME=VALUE NAME` | sets the first variable and removes the second one |
//! | `#! home NAME` | copies the files in `home/NAME` beside the transcript into the state folder |
//! | `#! only PLACE: REASON` | the case is played only in `memory`, or only over the `wire` |
//! | `# …` | a comment; blank lines are ignored |
//!
//! `{tmp}` in a line stands for the path of a folder that is new and empty in each play.
//!
//! A PATTERN is JSON with six additional words, outside of strings:
//!
//! | word | matches |
//! |---|---|
//! | `_` | any value |
//! | `has"text"` | a string that contains the text |
//! | `b64"text"` | a base64 string of exactly these bytes |
//! | `size"1000"` | a base64 string of that many bytes |
//! | `as"name"` | a string; every later `as` with this name matches the same string only, and `{name}` in later `>` lines is its text |
//! | `not"name"` | a string other than the one with that name |
//!
//! The texts may contain JSON's escapes. In `b64` a character up to `\u00ff` stands for the byte with its number, so
//! `\u00ff` is the byte 255 and an `ä` in UTF-8 is `\u00c3\u00a4`; higher characters are refused. In `>` lines
//! `b64"text"` becomes the base64 string. Objects match if they have the same members, no more and no fewer, in any
//! order; `"...":_` allows more members. An array whose last item is `"..."` may have more items like the one before it.
//!
//! A transcript without `<end` or `<fail` ends like this: the client closes its sending side, no further frame comes, and
//! parlor exits successfully. So an unexpected frame always fails the case.
//!
//! A stream of output may be cut into frames anywhere. So a frame that does not match is joined with the next one, if the
//! door says that both are pieces of one stream ([`Door::join`]), and compared again. `_` matches the first piece of a
//! stream: write the bytes or their number instead.
//!
//! # Running
//!
//! In a test target of `crates/parlor`:
//!
//! ```no_run
//! use std::path::Path;
//! use parlor_testkit::{Exec, Program, play_folder};
//!
//! # const PARLOR: &str = "";
//! // #[test]
//! fn exec_over_stdio() {
//!     // const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");
//!     let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/exec");
//!     play_folder(&folder, &Exec, || Program::start(PARLOR, &["stdio", "exec"]));
//! }
//! ```
//!
//! [`play_cases`] does the same for a door whose peers need the [`Case`]: its arguments, variables and state folder. Both
//! start a new runtime for each case. With `GOLDEN=write` in the environment, the runner replaces the `<` lines that did
//! not match with the frames that arrived, for review. `known.txt` beside the doors' folders has a line
//! `door/file.txt: reason` for each case that cannot pass yet; the runner fails when such a case passes.

mod case;
mod door;
mod executable;
mod folder;
mod notation;
mod outside_tmp;
mod pattern;
mod peer;
mod play;
mod program;
mod random_numbers;
mod socket;
mod transcript;

pub use case::{Case, PlayedIn};
pub use door::{Acp, Door, Exec, Loaf, Mcp, PeerDialect, Supr, Synaps};
pub use executable::{copy_executable, write_executable};
pub use folder::{Report, play_cases, play_folder};
pub use outside_tmp::folder_outside_tmp;
pub use peer::{Peer, STEP_TIMEOUT, advance_time};
pub use program::{Launch, Program};
pub use random_numbers::RandomNumbers;
pub use socket::SocketConnection;
