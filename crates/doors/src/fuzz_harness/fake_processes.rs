//! A fake process backend. It keeps the guarantees of the real one and takes all other decisions from its choices.

use std::collections::BTreeMap;

use parlor_vocab::{
    OutputStream, ProcessEvent, ProcessExit, ProcessId, ProcessRefusal, ProcessReply, ProcessRequest,
};

use super::choices::Choices;
use crate::Ticket;

/// What the backend passes to the machine.
pub(super) enum Update {
    Answer(Ticket, Result<ProcessReply, ProcessRefusal>),
    Event(ProcessEvent),
}

pub(super) struct FakeProcesses<'a> {
    choices: Choices<'a>,
    /// The processes that have not exited, and whether they are being terminated.
    running: BTreeMap<ProcessId, bool>,
    requests: Vec<(Ticket, ProcessRequest)>,
}

impl<'a> FakeProcesses<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        Self { choices: Choices::new(choices), running: BTreeMap::new(), requests: Vec::new() }
    }

    pub(super) fn submit(&mut self, ticket: Ticket, request: ProcessRequest) {
        self.requests.push((ticket, request));
    }

    fn choice(&mut self) -> u8 {
        self.choices.next()
    }

    /// How many actions the backend takes before the next frame.
    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choice() % 4 {
            0 | 1 => self.answer(),
            2 => self.output(),
            _ => self.exit(),
        }
    }

    /// Answers one of the pending requests, or lets the process exit that stands in its way.
    pub(super) fn answer(&mut self) -> Option<Update> {
        let index = usize::from(self.choice()).checked_rem(self.requests.len())?;
        if let (_, ProcessRequest::StartProcess(start)) = &self.requests[index] {
            let id = start.process.clone();
            if self.running.get(&id) == Some(&true) {
                return Some(self.exit_of(id)); // The id is free again once the exit was reported.
            }
        }
        let (ticket, request) = self.requests.remove(index);
        Some(Update::Answer(ticket, self.carry_out(request)))
    }

    fn carry_out(&mut self, request: ProcessRequest) -> Result<ProcessReply, ProcessRefusal> {
        let choice = self.choice();
        match request {
            ProcessRequest::StartProcess(start) => match choice % 4 {
                _ if self.running.contains_key(&start.process) => {
                    Err(ProcessRefusal::ProcessExists(start.process))
                }
                0 => {
                    self.running.insert(start.process, false);
                    Ok(ProcessReply::ProcessStarted)
                }
                1 => Err(ProcessRefusal::CannotStart { attempt: start.program, reason: "choice".to_owned() }),
                2 => Err(ProcessRefusal::RelativeFolder(start.folder.display().to_string())),
                _ => Err(ProcessRefusal::TooManyProcesses { limit: choice.into() }),
            },
            ProcessRequest::WriteProcess { process, .. } => match choice % 4 {
                _ if self.running.get(&process) != Some(&false) => {
                    Err(ProcessRefusal::UnknownProcess(process))
                }
                0 => Ok(ProcessReply::WriteAccepted),
                1 => Err(ProcessRefusal::StdinClosed(process)),
                2 => Err(ProcessRefusal::StdinGone(process)),
                _ => Err(ProcessRefusal::StdinFull { process, limit: choice.into(), what: "bytes" }),
            },
            ProcessRequest::TerminateProcess { process } => {
                let was_running = self.running.get(&process) == Some(&false);
                self.running.entry(process).and_modify(|is_terminating| *is_terminating = true);
                Ok(ProcessReply::ProcessTerminating { was_running })
            }
        }
    }

    fn any_process(&mut self) -> Option<ProcessId> {
        let index = usize::from(self.choice()).checked_rem(self.running.len())?;
        self.running.keys().nth(index).cloned()
    }

    fn output(&mut self) -> Option<Update> {
        let (process, choice) = (self.any_process()?, self.choice());
        let stream =
            [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Terminal][usize::from(choice % 3)];
        let bytes = vec![choice; usize::from(choice) + 1];
        Some(Update::Event(ProcessEvent::ProcessOutput { process, stream, bytes }))
    }

    pub(super) fn exit(&mut self) -> Option<Update> {
        let process = self.any_process()?;
        Some(self.exit_of(process))
    }

    fn exit_of(&mut self, process: ProcessId) -> Update {
        self.running.remove(&process);
        let choice = self.choice();
        let ending = match choice % 4 {
            0 => ProcessExit::Code(choice),
            1 => ProcessExit::Signal(choice.into()),
            2 => ProcessExit::Terminated,
            _ => ProcessExit::Unknown,
        };
        Update::Event(ProcessEvent::ProcessExited { process, ending })
    }
}
