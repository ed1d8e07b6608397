//! Looks at the processes that others of the same user offer; the other half of `offer.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::offer::FOLDER;
use crate::web::{Onlooker, ProcessLine, Sight, TerminalSize};

/// How many doors are asked what they do. More are not listed.
pub const MAX_OFFERS: usize = 64;

/// How long a door may take to say what it does.
pub const OFFER_WAIT: Duration = Duration::from_millis(500);

/// The longest line of a door: all that is retained of two streams, or the names of all its processes.
pub const MAX_OFFER_LINE_BYTES: u64 = 8 << 20;

/// All processes that are offered in the state folder `home`. Sockets that nobody listens at are removed.
pub async fn offered(home: &Path) -> Vec<ProcessLine> {
    let mut lines = Vec::new();
    let Ok(entries) = std::fs::read_dir(home.join(FOLDER)) else { return lines };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "sock"));
    paths.sort();
    for path in paths.iter().take(MAX_OFFERS) {
        let listed = async {
            let mut door = ask(path, "list").await?;
            let value = line(&mut door).await?;
            serde_json::from_value::<Vec<ProcessLine>>(value).ok()
        };
        if let Ok(Some(listed)) = timeout(OFFER_WAIT, listed).await {
            lines.extend(listed.into_iter().map(|line| ProcessLine { here: false, ..line }));
        }
    }
    lines
}

/// Begins to look at the process that a door of number `pid` calls `number`; none if it is not there.
pub async fn look(home: &Path, pid: u32, number: u64) -> Option<Box<dyn Onlooker>> {
    let path = home.join(FOLDER).join(format!("{pid}.sock"));
    let begun = async {
        let mut door = ask(&path, &number.to_string()).await?;
        line(&mut door).await?.get("watching")?;
        Some(door)
    };
    let door = timeout(OFFER_WAIT, begun).await.ok()??;
    Some(Box::new(Far { door, partial: Vec::new(), has_ended: false }))
}

type Door = BufReader<UnixStream>;

async fn ask(path: &Path, question: &str) -> Option<Door> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            // Its door is dead.
            let _ = std::fs::remove_file(path);
            return None;
        }
        Err(_) => return None,
    };
    stream.write_all(format!("{question}\n").as_bytes()).await.ok()?;
    Some(BufReader::new(stream))
}

async fn line(door: &mut Door) -> Option<Value> {
    let mut line = Vec::new();
    door.take(MAX_OFFER_LINE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    serde_json::from_slice(&line).ok()
}

/// A process of another door.
struct Far {
    door: Door,
    /// What was read of the next line.
    partial: Vec<u8>,
    has_ended: bool,
}

#[async_trait]
impl Onlooker for Far {
    async fn next(&mut self) -> Option<Sight> {
        if self.has_ended {
            return None;
        }
        let mut limited = (&mut self.door).take(MAX_OFFER_LINE_BYTES);
        limited.read_until(b'\n', &mut self.partial).await.ok()?;
        // A line without an end is the end of the door.
        let line: Value = serde_json::from_slice(&std::mem::take(&mut self.partial)).ok()?;
        if let Some(code) = line.get("exited") {
            self.has_ended = true;
            return Some(Sight::Exited(code.as_i64().and_then(|code| i32::try_from(code).ok())));
        }
        let output = line.get("output")?.as_str()?;
        Some(Sight::Output(base64_simd::STANDARD.decode_to_vec(output).ok()?))
    }

    fn write(&mut self, _bytes: Vec<u8>) -> bool {
        false
    }

    fn resize(&mut self, _size: TerminalSize) {}
}
