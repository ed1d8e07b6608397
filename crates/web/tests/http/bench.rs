//! A table with one process, which says back what is typed and ends when that is `exit`.

use async_trait::async_trait;
use parlor_transport::{ProcessInfo, ProcessViewer, TerminalSize, ViewerEvent};
use parlor_web::{ProcessApiError, ProcessTable};
use tokio::sync::mpsc;

/// The process `p`.
pub(crate) struct Bench;

#[async_trait]
impl ProcessTable for Bench {
    async fn list(&self) -> Vec<ProcessInfo> {
        vec![line(vec!["sh".to_owned()], TerminalSize { cols: 80, rows: 24 })]
    }

    async fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessInfo, ProcessApiError> {
        match command.as_ref().and_then(|command| command.first()).map(String::as_str) {
            Some("none") => Err(ProcessApiError::CannotStart("cannot run \"none\"".to_owned())),
            Some("many") => Err(ProcessApiError::TooMany("too many processes".to_owned())),
            Some("forbidden") => Err(ProcessApiError::Forbidden("not here".to_owned())),
            Some(_) | None => Ok(line(command.unwrap_or_default(), size)),
        }
    }

    async fn end(&self, id: &str) -> Result<(), ProcessApiError> {
        if id == "p" { Ok(()) } else { Err(ProcessApiError::Unknown) }
    }

    async fn look(&self, id: &str) -> Result<Box<dyn ProcessViewer>, ProcessApiError> {
        if id != "p" {
            return Err(ProcessApiError::Unknown);
        }
        let (typed, said) = mpsc::channel(8);
        let _ = typed.try_send(ViewerEvent::Output(b"hello".to_vec()));
        Ok(Box::new(Parrot { typed: Some(typed), said }))
    }
}

fn line(command: Vec<String>, size: TerminalSize) -> ProcessInfo {
    let [id, name, door, started] = ["p", "sh", "supr", "2026-01-02T03:04:05.006Z"].map(str::to_owned);
    let TerminalSize { cols, rows } = size;
    let (running, exit_code, here) = (true, None, true);
    ProcessInfo { id, name, door, pid: 7, command, tty: true, running, exit_code, started, cols, rows, here }
}

struct Parrot {
    typed: Option<mpsc::Sender<ViewerEvent>>,
    said: mpsc::Receiver<ViewerEvent>,
}

#[async_trait]
impl ProcessViewer for Parrot {
    async fn next(&mut self) -> Option<ViewerEvent> {
        self.said.recv().await
    }

    fn write(&mut self, bytes: Vec<u8>) -> bool {
        let sight =
            if bytes == b"exit" { ViewerEvent::Exited(Some(3)) } else { ViewerEvent::Output(bytes.clone()) };
        let is_taken =
            bytes != b"deaf" && self.typed.as_ref().is_some_and(|typed| typed.try_send(sight).is_ok());
        if bytes == b"exit" {
            self.typed = None;
        }
        is_taken
    }

    fn resize(&mut self, size: TerminalSize) {
        let told = format!("{} by {}", size.cols, size.rows);
        let _ = self.typed.as_ref().map(|typed| typed.try_send(ViewerEvent::Output(told.into_bytes())));
    }
}
