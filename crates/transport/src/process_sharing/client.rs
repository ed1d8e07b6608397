//! The client of process sharing: it lists and watches the processes that other parlor processes of the same user share
//! with `server.rs`.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::socket_folder::{socket_path, socket_paths};
use super::{ProcessInfo, ProcessViewer, TerminalSize, ViewerEvent};
use crate::socket_file::connect_or_remove;

/// How many sharing servers are asked for their processes. The processes of further ones are not listed.
pub const MAX_SHARING_SERVERS: usize = 64;

/// How long a sharing server may take to answer.
pub const SHARING_WAIT: Duration = Duration::from_millis(500);

/// The longest line that a sharing server may send: the retained output of two streams, or the list of its processes.
pub const MAX_SHARING_LINE_BYTES: u64 = 8 << 20;

/// Lists all processes that are shared in the state folder `home`. Removes sockets at which no process listens.
pub async fn list_shared_processes(home: &Path) -> Vec<ProcessInfo> {
    let mut processes = Vec::new();
    let mut server_count = 0;
    for path in socket_paths(home) {
        let Some(stream) = connect_or_remove(&path).await else { continue };
        server_count += 1;
        let listed = async {
            let mut server = send_request(stream, "list").await?;
            let value = read_line(&mut server).await?;
            serde_json::from_value::<Vec<ProcessInfo>>(value).ok()
        };
        if let Ok(Some(listed)) = timeout(SHARING_WAIT, listed).await {
            processes.extend(listed.into_iter().map(|process| ProcessInfo { here: false, ..process }));
        }
        if server_count == MAX_SHARING_SERVERS {
            break;
        }
    }
    processes
}

/// Watches the process `number` of the sharing server with process id `pid`, from the offset `after` on, or from the oldest
/// output that is left. None if there is no such process.
pub async fn watch_shared_process(
    home: &Path,
    pid: u32,
    number: u64,
    after: Option<u64>,
) -> Option<Box<dyn ProcessViewer>> {
    let path = socket_path(home, pid);
    let watching = async {
        if let Some(after) = after
            && let Some(process) = watch(&path, &format!("{number} {after}")).await
        {
            return Some(process);
        }
        // An older server does not know offsets, and answers as if there were no such process.
        watch(&path, &number.to_string()).await
    };
    let process = timeout(SHARING_WAIT, watching).await.ok()??;
    Some(Box::new(process))
}

async fn watch(path: &Path, request: &str) -> Option<RemoteProcess> {
    let mut server = send_request(connect_or_remove(path).await?, request).await?;
    let answer = read_line(&mut server).await?;
    answer.get("watching")?;
    Some(RemoteProcess { server, start_offset: offset(&answer), partial: Vec::new(), has_ended: false })
}

/// The offset in a line of a sharing server; older servers send none.
fn offset(line: &Value) -> Option<u64> {
    line.get("offset").and_then(Value::as_u64)
}

/// A connection to a sharing server.
type SharingServer = BufReader<UnixStream>;

async fn send_request(mut stream: UnixStream, request: &str) -> Option<SharingServer> {
    stream.write_all(format!("{request}\n").as_bytes()).await.ok()?;
    Some(BufReader::new(stream))
}

async fn read_line(server: &mut SharingServer) -> Option<Value> {
    let mut line = Vec::new();
    server.take(MAX_SHARING_LINE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    serde_json::from_slice(&line).ok()
}

/// A process of another parlor process.
struct RemoteProcess {
    server: SharingServer,
    start_offset: Option<u64>,
    /// The part of the next line that was read before `next` was cancelled.
    partial: Vec<u8>,
    has_ended: bool,
}

#[async_trait]
impl ProcessViewer for RemoteProcess {
    fn start_offset(&self) -> Option<u64> {
        self.start_offset
    }

    async fn next(&mut self) -> Option<ViewerEvent> {
        if self.has_ended {
            return None;
        }
        // A cancelled call may have read a part of the line already.
        let left = MAX_SHARING_LINE_BYTES.saturating_sub(self.partial.len() as u64);
        let mut limited = (&mut self.server).take(left);
        limited.read_until(b'\n', &mut self.partial).await.ok()?;
        // A line without its newline is cut off or too long. It is no valid JSON, which ends the view.
        let line: Value = serde_json::from_slice(&std::mem::take(&mut self.partial)).ok()?;
        if let Some(code) = line.get("exited") {
            self.has_ended = true;
            return Some(ViewerEvent::Exited(code.as_i64().and_then(|code| i32::try_from(code).ok())));
        }
        let bytes = base64_simd::STANDARD.decode_to_vec(line.get("output")?.as_str()?).ok()?;
        Some(ViewerEvent::Output { offset: offset(&line), bytes })
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
        std::fs::create_dir(home.path().join("run")).unwrap();
        home
    }

    /// Starts a sharing server with process id `pid` that answers every request with `answer` and then sends nothing more.
    fn start_server(home: &TempDir, pid: u32, answer: String) {
        start_server_with(home, pid, move |_| answer.clone());
    }

    /// Starts a sharing server with process id `pid` that answers a request with the text that `answer` gives.
    fn start_server_with(home: &TempDir, pid: u32, answer: impl Fn(&str) -> String + Send + 'static) {
        let path = home.path().join("run").join(format!("{pid}.sock"));
        let listener = UnixListener::bind(path).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut request = String::new();
                let _ = stream.read_line(&mut request).await;
                let _ = stream.write_all(answer(request.trim()).as_bytes()).await;
                open.push(stream);
            }
        });
    }

    /// The list of a server with one process, whose command has `command_bytes` bytes.
    fn list(pid: u32, command_bytes: usize) -> String {
        let command = "x".repeat(command_bytes);
        let line = serde_json::json!([{
            "id": format!("{pid}-1"), "name": "job", "door": "exec", "pid": pid, "command": [command], "tty": true,
            "running": true, "exit_code": null, "started": "2026-01-02T03:04:05.006Z", "cols": 80, "rows": 24,
            "here": true,
        }]);
        format!("{line}\n")
    }

    async fn pids(home: &TempDir) -> Vec<u32> {
        list_shared_processes(home.path()).await.iter().map(|process| process.pid).collect()
    }

    #[tokio::test]
    async fn servers_over_the_limit_are_not_listed() {
        let home = home();
        let count = u32::try_from(MAX_SHARING_SERVERS).unwrap();
        // Pids of one length, because socket paths are sorted as text.
        let all: Vec<u32> = (1000..=1000 + count).collect();
        all.iter().for_each(|pid| start_server(&home, *pid, list(*pid, 1)));
        assert_eq!(pids(&home).await, all[..MAX_SHARING_SERVERS]);
    }

    #[tokio::test]
    async fn sockets_of_killed_servers_hide_no_living_one() {
        let home = home();
        let count = u32::try_from(2 * MAX_SHARING_SERVERS).unwrap();
        for pid in 1000..1000 + count {
            drop(UnixListener::bind(home.path().join(format!("run/{pid}.sock"))).unwrap());
        }
        start_server(&home, 9999, list(9999, 1));
        assert_eq!(pids(&home).await, [9999]);
        assert_eq!(std::fs::read_dir(home.path().join("run")).unwrap().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_skipped_after_a_time_limit() {
        let home = home();
        start_server(&home, 1, String::new());
        start_server(&home, 2, list(2, 1));
        let begun = Instant::now();
        assert_eq!(timeout(2 * SHARING_WAIT, pids(&home)).await, Ok(vec![2]));
        assert!(begun.elapsed() >= SHARING_WAIT);
        let viewer = timeout(2 * SHARING_WAIT, watch_shared_process(home.path(), 1, 1, Some(0))).await;
        assert!(viewer.is_ok_and(|viewer| viewer.is_none()));
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_ignored() {
        let home = home();
        let limit = usize::try_from(MAX_SHARING_LINE_BYTES).unwrap();
        let without_command = list(1, 0).len();
        start_server(&home, 1, list(1, limit - without_command));
        // Two bytes more, because a line is complete JSON without its newline.
        start_server(&home, 2, list(2, limit - without_command + 2));
        start_server(&home, 3, list(3, 1));
        assert_eq!(pids(&home).await, [1, 3]);
    }

    #[tokio::test]
    async fn a_view_has_the_offsets_that_the_server_tells() {
        let home = home();
        start_server_with(&home, 1, |request| match request {
            "7 100" => {
                "{\"watching\":\"1-7\",\"offset\":120}\n{\"output\":\"aGk=\",\"offset\":120}\n".to_owned()
            }
            other => panic!("{other}"),
        });
        let mut viewer = watch_shared_process(home.path(), 1, 7, Some(100)).await.expect("a viewer");
        assert_eq!(viewer.start_offset(), Some(120));
        let output = ViewerEvent::Output { offset: Some(120), bytes: b"hi".to_vec() };
        assert_eq!(viewer.next().await, Some(output));
    }

    #[tokio::test]
    async fn a_process_of_an_older_server_is_watched_from_the_start_and_without_offsets() {
        let home = home();
        // As before offsets existed: a request that is not a number is answered like that of an unknown process.
        start_server_with(&home, 1, |request| match request {
            "7" => "{\"watching\":\"1-7\"}\n{\"output\":\"aGk=\"}\n{\"exited\":0}\n".to_owned(),
            _ => "null\n".to_owned(),
        });
        for after in [None, Some(0), Some(100)] {
            let mut viewer = watch_shared_process(home.path(), 1, 7, after).await.expect("a viewer");
            assert_eq!(viewer.start_offset(), None);
            let output = ViewerEvent::Output { offset: None, bytes: b"hi".to_vec() };
            assert_eq!(viewer.next().await, Some(output));
            assert_eq!(viewer.next().await, Some(ViewerEvent::Exited(Some(0))));
            assert_eq!(viewer.next().await, None);
        }
        assert!(watch_shared_process(home.path(), 1, 8, Some(0)).await.is_none());
    }

    #[tokio::test]
    async fn cancelled_reads_do_not_raise_the_limit_of_a_line() {
        let (mut server, stream) = UnixStream::pair().unwrap();
        let (client, partial) = (BufReader::new(stream), Vec::new());
        let mut process = RemoteProcess { server: client, start_offset: None, partial, has_ended: false };
        tokio::spawn(async move { while server.write_all(&[b'x'; 4096]).await.is_ok() {} });
        let limit = usize::try_from(MAX_SHARING_LINE_BYTES).unwrap();
        // `next` is cancelled again and again, as it is by the pings of a WebSocket.
        let ended = loop {
            tokio::select! {
                biased;
                event = process.next() => break event,
                () = tokio::task::yield_now() => assert!(process.partial.len() <= limit),
            }
        };
        assert_eq!(ended, None);
    }
}
