//! Plays a script to a program and records the frames and the exit of the program.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use crate::normalize::Normalizer;
use crate::script::{Run, Script, Step};

/// How long a response may take. After that the record says that there is none.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// How long a program may take to exit.
const END_WAIT: Duration = Duration::from_secs(20);

/// The two programs that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Parlor,
    Peer,
}

impl Program {
    /// A message that makes a turn fail. The peer has no key, so every message fails.
    fn failing(self) -> &'static str {
        match self {
            Self::Parlor => "/fail no luck",
            Self::Peer => "hello",
        }
    }
}

/// Plays `script` to the program at `path`. Returns one line for each frame and each exit.
pub(crate) async fn play(script: &Script, program: Program, path: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path().canonicalize().expect("the folder exists");
    prepare(&folder, path);
    let mut normalizer = Normalizer::new(program.failing(), &folder);
    let mut record = Vec::new();
    for run in script.runs {
        play_run(run, program, &folder, &mut normalizer, &mut record).await;
    }
    record
}

/// Creates the files that scripts mention, and a link `synaps` to the program.
fn prepare(folder: &Path, path: &str) {
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("the file can be written");
    write("empty.txt", b"");
    write("note.txt", b"a note\n");
    write("binary.bin", &[0xff, 0xfe, 0x00, 0x01]);
    write("control.txt", b"bell \x07\n");
    write("long.txt", &vec![b'x'; (256 << 10) + 1]);
    write("huge.bin", &vec![b'x'; (10 << 20) + 1]);
    write("broken.png", b"\x89PNG\r\n\x1a\n");
    write("broken.pdf", b"%PDF-1.7\n");
    std::os::unix::fs::symlink("note.txt", folder.join("link.txt")).expect("the link can be created");
    std::os::unix::fs::symlink(path, folder.join("synaps")).expect("the link can be created");
    std::fs::create_dir(folder.join("folder")).expect("the folder can be created");
}

async fn play_run(
    run: &Run,
    program: Program,
    folder: &Path,
    normalizer: &mut Normalizer,
    record: &mut Vec<String>,
) {
    let fill = |text: &str, normalizer: &Normalizer| {
        let text = text.replace("{FAIL}", program.failing()).replace("{DIR}", &folder.display().to_string());
        text.replace("{SESSION}", normalizer.first_session())
    };
    let args: Vec<String> = run.args.iter().map(|arg| fill(arg, normalizer)).collect();
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
            Step::Line(line) => format!("{}\n", fill(line, normalizer)).into_bytes(),
            Step::Bytes(bytes) => bytes.to_vec(),
            Step::Long { head, length, tail } => {
                let padding = length - head.len() - tail.len();
                format!("{head}{}{tail}\n", " ".repeat(padding)).into_bytes()
            }
            Step::Answer(id) => {
                read_until(&mut stdout, normalizer, record, id, |_| true).await;
                continue;
            }
            Step::Response(id) => {
                read_until(&mut stdout, normalizer, record, id, |frame| frame["command"] == "prompt").await;
                continue;
            }
            Step::CloseStdin => {
                stdin = None;
                continue;
            }
        };
        if let Some(stdin) = &mut stdin {
            // A program that has exited does not read; the last line of the record has its exit.
            let _ = stdin.write_all(&bytes).await;
        }
    }
    while let Some(frame) = read(&mut stdout, END_WAIT).await {
        record.push(normalizer.frame(frame));
    }
    let mut stderr_bytes = Vec::new();
    let ended = async {
        let _ = stderr.read_to_end(&mut stderr_bytes).await;
        child.wait().await
    };
    let status =
        timeout(END_WAIT, ended).await.expect("the program ends").expect("the process can be waited for");
    let writes_stderr = if stderr_bytes.is_empty() { "" } else { " and writes to stderr" };
    record.push(format!("exits with {:?}{writes_stderr}", status.code()));
}

/// Reads until a frame has this `id` and `is_last` is true for it.
async fn read_until(
    stdout: &mut BufReader<ChildStdout>,
    normalizer: &mut Normalizer,
    record: &mut Vec<String>,
    id: &str,
    is_last: impl Fn(&Value) -> bool,
) {
    while let Some(frame) = read(stdout, ANSWER_WAIT).await {
        let is_last_frame = frame["id"] == id && is_last(&frame);
        record.push(normalizer.frame(frame));
        if is_last_frame {
            return;
        }
    }
    record.push(format!("no answer to {id:?}"));
}

async fn read(stdout: &mut BufReader<ChildStdout>, limit: Duration) -> Option<Value> {
    let mut line = String::new();
    let read = timeout(limit, stdout.read_line(&mut line)).await.ok()?;
    if read.expect("stdout can be read") == 0 {
        return None;
    }
    Some(serde_json::from_str(&line).unwrap_or_else(|_| json!({"no JSON": line})))
}
