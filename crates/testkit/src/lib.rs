//! Plays transcripts: conversations with parlor, written down as text, checked frame by frame.
//!
//! A transcript is a file in `tests/transcripts/<door>/`. The same file is played against a
//! machine in memory and against the real program over its real transport; both are a [`Peer`].
//! Of the doors this crate knows nothing but what each says in its [`Door`]. Only ever a
//! dev-dependency.
//!
//! # The format
//!
//! UTF-8 text, one case per file. The first line is `# ` and what the case shows. Then:
//!
//! | line | meaning |
//! |---|---|
//! | `> TEXT` | the client sends TEXT and a newline; `>` alone is a blank line |
//! | `>- TEXT` | the client sends TEXT without a newline |
//! | `>x 7b ff 0a` | the client sends these bytes |
//! | `>* 1048577 78` | the client sends this byte so many times |
//! | `>eof` | the client closes its sending side |
//! | `>again ARGS` | the connection ends as it does below, and another begins in the same surroundings, with ARGS added to the command line |
//! | `~ 60s` | this much time passes; only where it is invented |
//! | `< PATTERN` | the next frame from parlor matches |
//! | `<? PATTERN` | neighbouring lines of this kind are a set: the next frames match them in any order. Any other line ends the set, a blank one and a comment too |
//! | `<end` | parlor closes its side and ends cleanly, and no frame comes before that |
//! | `<fail TEXT` | the same, but it ends badly, and TEXT is in its exit status or its stderr |
//! | `#! args ARGS` | the command line has these too |
//! | `#! env NAME=VALUE NAME` | the environment has this variable, and not that one |
//! | `#! home NAME` | the state folder begins with the files in `home/NAME` beside the transcript |
//! | `#! only PLACE: REASON` | the case is played in `memory` or over the `wire` only |
//! | `# …` | a comment; blank lines are free |
//!
//! `{tmp}` in a line stands for the path of a folder that is fresh and empty in each play.
//!
//! A PATTERN is JSON with six more words, outside of strings:
//!
//! | word | matches |
//! |---|---|
//! | `_` | anything that is there |
//! | `has"text"` | a string that contains the text |
//! | `b64"text"` | a base64 string of exactly these bytes |
//! | `size"1000"` | a base64 string of that many bytes |
//! | `as"name"` | a string; wherever that name comes again it is the same one, and `{name}` in later `>` lines is its text |
//! | `not"name"` | a string other than the one of that name |
//!
//! The texts take JSON's escapes. In `b64` a character up to `\u00ff` is the byte of its number,
//! so `\u00ff` is the byte 255 and an `ä` in UTF-8 is `\u00c3\u00a4`; characters above are refused.
//! In `>` lines `b64"text"` becomes the base64 string. Objects match when they have the same
//! members, no more and no fewer, in any order; `"...":_` allows more. An array whose last item is `"..."` may go
//! on with items like the one before.
//!
//! A transcript that says nothing of its end ends like this: the client closes its sending side,
//! no further frame comes, and parlor ends cleanly. So what nobody expected is always seen.
//!
//! Where a stream of output is cut into frames is chance. A frame that does not match is therefore
//! joined with the one after it, if the door says that they are pieces of one thing
//! ([`Door::join`]), and tried again. `_` in the place of a chunk takes the first piece as it is:
//! spell the bytes, or their number.
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
//! [`play_cases`] does the same for a door whose peers need to know the [`Case`]: arguments, variables,
//! a home. Both bring their own runtime, a fresh one for each case. With `GOLDEN=write` in the
//! environment the `<` lines that did not match are rewritten with what arrived, for review.
//! `known.txt` beside the doors' folders has a line `door/file.txt: reason` for each case that
//! cannot pass yet; it complains when the case starts to pass.

mod case;
mod door;
mod executable;
mod folder;
mod notation;
mod pattern;
mod peer;
mod play;
mod program;
mod transcript;

pub use case::{Case, PlayedIn};
pub use door::{Door, Exec, Loaf, Supr, Synaps};
pub use executable::{copy_executable, write_executable};
pub use folder::{Report, play_cases, play_folder};
pub use peer::{PATIENCE, Peer, let_time_pass};
pub use program::{Launch, Program};
