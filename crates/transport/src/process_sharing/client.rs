//! Looks at the processes that others of the same user offer; the other half of `offer.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::server::FOLDER;
use super::{ProcessInfo, ProcessViewer, TerminalSize, ViewerEvent};

/// How many doors are asked what they do. More are not listed.
pub const MAX_SHARING_SERVERS: usize = 64;

/// How long a door may take to say what it does.
pub const SHARING_WAIT: Duration = Duration::from_millis(500);

/// The longest line of a door: all that is retained of two streams, or the names of all its processes.
pub const MAX_SHARING_LINE_BYTES: u64 = 8 << 20;

/// All processes that are list_shared_processes in the state folder `home`. Sockets that nobody listens at are removed.
pub async fn list_shared_processes(home: &Path) -> Vec<ProcessInfo> {
    let mut lines = Vec::new();
    let Ok(entries) = std::fs::read_dir(home.join(FOLDER)) else { return lines };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "sock"));
    paths.sort();
    for path in paths.iter().take(MAX_SHARING_SERVERS) {
        let listed = async {
            let mut door = ask(path, "list").await?;
            let value = line(&mut door).await?;
            serde_json::from_value::<Vec<ProcessInfo>>(value).ok()
        };
        if let Ok(Some(listed)) = timeout(SHARING_WAIT, listed).await {
            lines.extend(listed.into_iter().map(|line| ProcessInfo { here: false, ..line }));
        }
    }
    lines
}

/// Begins to look at the process that a door of number `pid` calls `number`; none if it is not there.
pub async fn watch_shared_process(home: &Path, pid: u32, number: u64) -> Option<Box<dyn ProcessViewer>> {
    let path = home.join(FOLDER).join(format!("{pid}.sock"));
    let begun = async {
        let mut door = ask(&path, &number.to_string()).await?;
        line(&mut door).await?.get("watching")?;
        Some(door)
    };
    let door = timeout(SHARING_WAIT, begun).await.ok()??;
    Some(Box::new(RemoteProcess { door, partial: Vec::new(), has_ended: false }))
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
    door.take(MAX_SHARING_LINE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    serde_json::from_slice(&line).ok()
}

/// A process of another door.
struct RemoteProcess {
    door: Door,
    /// What was read of the next line.
    partial: Vec<u8>,
    has_ended: bool,
}

#[async_trait]
impl ProcessViewer for RemoteProcess {
    async fn next(&mut self) -> Option<ViewerEvent> {
        if self.has_ended {
            return None;
        }
        // Who was not waited for has read a part of it already.
        let left = MAX_SHARING_LINE_BYTES.saturating_sub(self.partial.len() as u64);
        let mut limited = (&mut self.door).take(left);
        limited.read_until(b'\n', &mut self.partial).await.ok()?;
        // A line without an end is the end of the door.
        let line: Value = serde_json::from_slice(&std::mem::take(&mut self.partial)).ok()?;
        if let Some(code) = line.get("exited") {
            self.has_ended = true;
            return Some(ViewerEvent::Exited(code.as_i64().and_then(|code| i32::try_from(code).ok())));
        }
        let output = line.get("output")?.as_str()?;
        Some(ViewerEvent::Output(base64_simd::STANDARD.decode_to_vec(output).ok()?))
    }

    fn write(&mut self, _bytes: Vec<u8>) -> bool {
        false
    }

    fn resize(&mut self, _size: TerminalSize) {}
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::net::UnixListener;
    use tokio::time::Instant;

    use super::*;

    fn home() -> TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(FOLDER)).unwrap();
        home
    }

    /// A door of that number, which answers every question with `says` and then says nothing more.
    fn door(home: &TempDir, pid: u32, says: String) {
        let path = home.path().join(FOLDER).join(format!("{pid}.sock"));
        let listener = UnixListener::bind(path).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let _ = stream.read_line(&mut String::new()).await;
                let _ = stream.write_all(says.as_bytes()).await;
                open.push(stream);
            }
        });
    }

    /// What a door says that runs one process, whose command has so many letters.
    fn list(pid: u32, letters: usize) -> String {
        let command = "x".repeat(letters);
        let line = serde_json::json!([{
            "id": format!("{pid}-1"), "name": "job", "door": "exec", "pid": pid, "command": [command], "tty": true,
            "running": true, "exit_code": null, "started": "2026-01-02T03:04:05.006Z", "cols": 80, "rows": 24,
            "here": true,
        }]);
        format!("{line}\n")
    }

    async fn pids(home: &TempDir) -> Vec<u32> {
        list_shared_processes(home.path()).await.iter().map(|line| line.pid).collect()
    }

    #[tokio::test]
    async fn so_many_doors_are_asked_and_the_others_are_not_listed() {
        let home = home();
        let count = u32::try_from(MAX_SHARING_SERVERS).unwrap();
        // Of one length: names are in order as texts, not as numbers.
        let all: Vec<u32> = (1000..=1000 + count).collect();
        all.iter().for_each(|pid| door(&home, *pid, list(*pid, 1)));
        assert_eq!(pids(&home).await, all[..MAX_SHARING_SERVERS]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_door_that_says_nothing_is_not_waited_for() {
        let home = home();
        door(&home, 1, String::new());
        door(&home, 2, list(2, 1));
        let begun = Instant::now();
        assert_eq!(timeout(2 * SHARING_WAIT, pids(&home)).await, Ok(vec![2]));
        assert!(begun.elapsed() >= SHARING_WAIT);
        let looked = timeout(2 * SHARING_WAIT, watch_shared_process(home.path(), 1, 1)).await;
        assert!(looked.is_ok_and(|door| door.is_none()));
    }

    #[tokio::test]
    async fn a_line_has_a_length_and_what_is_longer_ends_it() {
        let home = home();
        let most = usize::try_from(MAX_SHARING_LINE_BYTES).unwrap();
        let around = list(1, 0).len();
        door(&home, 1, list(1, most - around));
        // The break after it may be missing.
        door(&home, 2, list(2, most - around + 2));
        door(&home, 3, list(3, 1));
        assert_eq!(pids(&home).await, [1, 3]);
    }

    #[tokio::test]
    async fn a_line_is_no_longer_for_who_reads_it_in_parts() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut far = RemoteProcess { door: BufReader::new(far), partial: Vec::new(), has_ended: false };
        tokio::spawn(async move { while near.write_all(&[b'x'; 4096]).await.is_ok() {} });
        let most = usize::try_from(MAX_SHARING_LINE_BYTES).unwrap();
        // It is left again and again, as a ping does it.
        let ended = loop {
            tokio::select! {
                biased;
                sight = far.next() => break sight,
                () = tokio::task::yield_now() => assert!(far.partial.len() <= most),
            }
        };
        assert_eq!(ended, None);
    }
}
