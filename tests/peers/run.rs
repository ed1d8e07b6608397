//! Plays a script to a program and writes down what it does.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use crate::plain::Plain;
use crate::script::{Run, Script, Step};

/// How long an answer may take. One that does not come is written down as such.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// How long a program may take to end.
const END_WAIT: Duration = Duration::from_secs(20);

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Parlor,
    Peer,
}

impl Program {
    /// A message that makes a turn fail: the peer has no key, and so fails at anything.
    fn failing(self) -> &'static str {
        match self {
            Self::Parlor => "/fail no luck",
            Self::Peer => "hello",
        }
    }
}

/// What `program` at `path` does when `script` is played to it, one line for each frame and each end.
pub(crate) async fn play(script: &Script, program: Program, path: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path().canonicalize().expect("it is there");
    prepare(&folder, path);
    let mut plain = Plain::new(program.failing(), &folder);
    let mut seen = Vec::new();
    for run in script.runs {
        play_run(run, program, &folder, &mut plain, &mut seen).await;
    }
    seen
}

/// Files that scripts speak of, and the program under the name that both have.
fn prepare(folder: &Path, path: &str) {
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("files can be written");
    write("empty.txt", b"");
    write("note.txt", b"a note\n");
    write("binary.bin", &[0xff, 0xfe, 0x00, 0x01]);
    write("control.txt", b"bell \x07\n");
    write("long.txt", &vec![b'x'; (256 << 10) + 1]);
    write("huge.bin", &vec![b'x'; (10 << 20) + 1]);
    write("broken.png", b"\x89PNG\r\n\x1a\n");
    write("broken.pdf", b"%PDF-1.7\n");
    std::os::unix::fs::symlink("note.txt", folder.join("link.txt")).expect("links can be made");
    std::os::unix::fs::symlink(path, folder.join("synaps")).expect("links can be made");
    std::fs::create_dir(folder.join("folder")).expect("folders can be made");
}

async fn play_run(run: &Run, program: Program, folder: &Path, plain: &mut Plain, seen: &mut Vec<String>) {
    let fill = |text: &str, plain: &Plain| {
        let text = text.replace("{FAIL}", program.failing()).replace("{DIR}", &folder.display().to_string());
        text.replace("{SESSION}", plain.first_session())
    };
    let args: Vec<String> = run.args.iter().map(|arg| fill(arg, plain)).collect();
    let mut child = Command::new(folder.join("synaps"))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", folder)
        .env("SYNAPS_BASE_DIR", folder.join("base"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take();
    let mut stdout = child.stdout.take().map(BufReader::new).expect("a pipe");
    let mut stderr = child.stderr.take().expect("a pipe");

    for step in run.steps {
        let bytes = match step {
            Step::Line(line) => format!("{}\n", fill(line, plain)).into_bytes(),
            Step::Bytes(bytes) => bytes.to_vec(),
            Step::Long { head, length, tail } => {
                let padding = length - head.len() - tail.len();
                format!("{head}{}{tail}\n", " ".repeat(padding)).into_bytes()
            }
            Step::Answer(id) => {
                read_until(&mut stdout, plain, seen, id, |_| true).await;
                continue;
            }
            Step::Response(id) => {
                read_until(&mut stdout, plain, seen, id, |frame| frame["command"] == "prompt").await;
                continue;
            }
            Step::HangUp => {
                stdin = None;
                continue;
            }
        };
        if let Some(stdin) = &mut stdin {
            // A program that has left does not read; what it did instead is in its last line.
            let _ = stdin.write_all(&bytes).await;
        }
    }
    while let Some(frame) = read(&mut stdout, END_WAIT).await {
        seen.push(plain.frame(frame));
    }
    let mut reason = Vec::new();
    let ended = async {
        let _ = stderr.read_to_end(&mut reason).await;
        child.wait().await
    };
    let status = timeout(END_WAIT, ended).await.expect("the program ends").expect("it can be waited for");
    let says_why = if reason.is_empty() { "" } else { ", says why" };
    seen.push(format!("exits with {:?}{says_why}", status.code()));
}

/// Reads until a frame with `id` satisfies `is_last`.
async fn read_until(
    stdout: &mut BufReader<ChildStdout>,
    plain: &mut Plain,
    seen: &mut Vec<String>,
    id: &str,
    is_last: impl Fn(&Value) -> bool,
) {
    while let Some(frame) = read(stdout, ANSWER_WAIT).await {
        let is_it = frame["id"] == id && is_last(&frame);
        seen.push(plain.frame(frame));
        if is_it {
            return;
        }
    }
    seen.push(format!("no answer to {id:?}"));
}

async fn read(stdout: &mut BufReader<ChildStdout>, limit: Duration) -> Option<Value> {
    let mut line = String::new();
    let read = timeout(limit, stdout.read_line(&mut line)).await.ok()?;
    if read.expect("stdout can be read") == 0 {
        return None;
    }
    Some(serde_json::from_str(&line).unwrap_or_else(|_| json!({"no JSON": line})))
}
