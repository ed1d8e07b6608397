//! A table with one process, which says back what is typed and ends when that is `exit`.

use async_trait::async_trait;
use parlor_host::web::{Onlooker, ProcessFlaw, ProcessLine, ProcessTable, Sight, TerminalSize};
use tokio::sync::mpsc;

/// The process `p`.
pub(crate) struct Bench;

#[async_trait]
impl ProcessTable for Bench {
    async fn list(&self) -> Vec<ProcessLine> {
        vec![line(vec!["sh".to_owned()], TerminalSize { cols: 80, rows: 24 })]
    }

    async fn start(
        &self,
        command: Option<Vec<String>>,
        size: TerminalSize,
    ) -> Result<ProcessLine, ProcessFlaw> {
        match command.as_ref().and_then(|command| command.first()).map(String::as_str) {
            Some("none") => Err(ProcessFlaw::CannotStart("cannot run \"none\"".to_owned())),
            Some("many") => Err(ProcessFlaw::TooMany("too many processes".to_owned())),
            Some("forbidden") => Err(ProcessFlaw::Forbidden("not here".to_owned())),
            Some(_) | None => Ok(line(command.unwrap_or_default(), size)),
        }
    }

    async fn end(&self, id: &str) -> Result<(), ProcessFlaw> {
        if id == "p" { Ok(()) } else { Err(ProcessFlaw::Unknown) }
    }

    async fn look(&self, id: &str) -> Result<Box<dyn Onlooker>, ProcessFlaw> {
        if id != "p" {
            return Err(ProcessFlaw::Unknown);
        }
        let (typed, said) = mpsc::channel(8);
        let _ = typed.try_send(Sight::Output(b"hello".to_vec()));
        Ok(Box::new(Parrot { typed: Some(typed), said }))
    }
}

fn line(command: Vec<String>, size: TerminalSize) -> ProcessLine {
    let [id, name, door, started] = ["p", "sh", "supr", "2026-01-02T03:04:05.006Z"].map(str::to_owned);
    let TerminalSize { cols, rows } = size;
    let (running, exit_code, here) = (true, None, true);
    ProcessLine { id, name, door, pid: 7, command, tty: true, running, exit_code, started, cols, rows, here }
}

struct Parrot {
    typed: Option<mpsc::Sender<Sight>>,
    said: mpsc::Receiver<Sight>,
}

#[async_trait]
impl Onlooker for Parrot {
    async fn next(&mut self) -> Option<Sight> {
        self.said.recv().await
    }

    fn write(&mut self, bytes: Vec<u8>) -> bool {
        let sight = if bytes == b"exit" { Sight::Exited(Some(3)) } else { Sight::Output(bytes.clone()) };
        let is_taken =
            bytes != b"deaf" && self.typed.as_ref().is_some_and(|typed| typed.try_send(sight).is_ok());
        if bytes == b"exit" {
            self.typed = None;
        }
        is_taken
    }

    fn resize(&mut self, size: TerminalSize) {
        let told = format!("{} by {}", size.cols, size.rows);
        let _ = self.typed.as_ref().map(|typed| typed.try_send(Sight::Output(told.into_bytes())));
    }
}
