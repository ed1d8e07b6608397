//! A fake process backend. It keeps the guarantees of the real one and takes all other decisions from its choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use parlor_vocab::{
    EnvironmentInfo, ExecutorEvent, ExecutorRefusal, ExecutorReply, ExecutorRequest, FileReply, HttpError,
    HttpReply, OutputPage, OutputStream, ProcessEvent, ProcessExit, ProcessId, ProcessRefusal, ProcessReply,
    ProcessRequest, SequencedChunk, WalkedTree, WriteOutcome,
};

use super::choices::Choices;
use crate::Ticket;

/// What the backend passes to the machine.
pub(super) enum Update {
    Answer(Ticket, Result<ExecutorReply, ExecutorRefusal>),
    Event(ExecutorEvent),
}

pub(super) struct FakeProcesses<'a> {
    choices: Choices<'a>,
    /// The processes that have not exited, and whether they are being terminated.
    running: BTreeMap<ProcessId, bool>,
    /// The processes with numbered events that are not closed: the last number, and whether they have exited.
    sequenced: BTreeMap<ProcessId, (u64, bool)>,
    requests: Vec<(Ticket, ExecutorRequest)>,
}

impl<'a> FakeProcesses<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        Self {
            choices: Choices::new(choices),
            running: BTreeMap::new(),
            sequenced: BTreeMap::new(),
            requests: Vec::new(),
        }
    }

    pub(super) fn submit(&mut self, ticket: Ticket, request: ExecutorRequest) {
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
        match self.choice() % 6 {
            0 | 1 => self.answer(),
            2 => self.output(),
            3 => self.sequenced_output(),
            4 => self.sequenced_end(),
            _ => self.exit(),
        }
    }

    /// Answers one of the pending requests, or lets the process exit that stands in its way.
    pub(super) fn answer(&mut self) -> Option<Update> {
        let index = usize::from(self.choice()).checked_rem(self.requests.len())?;
        if let (_, ExecutorRequest::Process(ProcessRequest::StartProcess(start))) = &self.requests[index] {
            let id = start.process.clone();
            if self.running.get(&id) == Some(&true) {
                return Some(self.exit_of(id)); // The id is free again once the exit was reported.
            }
        }
        let (ticket, request) = self.requests.remove(index);
        Some(Update::Answer(ticket, self.carry_out(request)))
    }

    fn carry_out(&mut self, request: ExecutorRequest) -> Result<ExecutorReply, ExecutorRefusal> {
        let choice = self.choice();
        match request {
            ExecutorRequest::Process(request) => Ok(ExecutorReply::Process(self.carry_out_first(request)?)),
            ExecutorRequest::OpenSession { resume: Some(id) } if choice.is_multiple_of(3) => {
                Err(ExecutorRefusal::UnknownSession(id))
            }
            ExecutorRequest::OpenSession { resume: Some(id) } if choice.is_multiple_of(5) => {
                Err(ExecutorRefusal::SessionAttached(id))
            }
            ExecutorRequest::OpenSession { .. } => Ok(ExecutorReply::SessionOpened(environment(choice))),
            ExecutorRequest::DescribeEnvironment => Ok(ExecutorReply::Environment(environment(choice))),
            ExecutorRequest::StartSequenced(start) => {
                let process = start.start.process;
                if self.sequenced.contains_key(&process) || choice.is_multiple_of(2) {
                    return Err(ProcessRefusal::ProcessExists(process).into());
                }
                self.sequenced.insert(process, (0, false));
                Ok(ExecutorReply::SequencedStarted { is_sandboxed: start.intent.is_some() })
            }
            ExecutorRequest::WriteOnce { .. } => Ok(ExecutorReply::Write(
                [WriteOutcome::Accepted, WriteOutcome::UnknownProcess, WriteOutcome::StdinClosed]
                    [usize::from(choice % 3)],
            )),
            ExecutorRequest::InterruptProcess { .. } => Ok(ExecutorReply::InterruptSent),
            ExecutorRequest::EndProcess { process } => {
                let was_running = self.sequenced.contains_key(&process);
                Ok(ExecutorReply::EndingProcess { was_running })
            }
            ExecutorRequest::ReadOutput(read) => match self.sequenced.get(&read.process) {
                None => Err(ProcessRefusal::UnknownProcess(read.process).into()),
                Some((last, _)) => Ok(ExecutorReply::Output(OutputPage {
                    chunks: vec![chunk(*last, choice)],
                    next_seq: last + 1,
                    ending: None,
                    is_closed: false,
                    is_denied: choice.is_multiple_of(2),
                })),
            },
            ExecutorRequest::Http(_) if choice.is_multiple_of(2) => {
                Err(HttpError::Failed("choice".to_owned()).into())
            }
            ExecutorRequest::Http(_) => {
                let headers = vec![("a".to_owned(), "b".to_owned())];
                Ok(ExecutorReply::Http(HttpReply { status: 200, headers, body: vec![choice] }))
            }
            ExecutorRequest::File { .. } => match choice % 6 {
                0 => Err(ExecutorRefusal::FileNotFound("choice".to_owned())),
                1 => Err(ExecutorRefusal::FileRefused("choice".to_owned())),
                2 => Err(ExecutorRefusal::FileFailed("choice".to_owned())),
                3 => Ok(ExecutorReply::File(FileReply::Content(vec![choice]))),
                4 => Ok(ExecutorReply::File(FileReply::Walked(WalkedTree::default()))),
                _ => Ok(ExecutorReply::File(FileReply::Done)),
            },
        }
    }

    fn sequenced_output(&mut self) -> Option<Update> {
        let (process, choice) = (self.any_sequenced()?, self.choice());
        let (last, _) = self.sequenced.get_mut(&process)?;
        *last += 1;
        let chunk = chunk(*last, choice);
        Some(Update::Event(ExecutorEvent::SequencedOutput { process, chunk }))
    }

    /// The exit of a process with numbered events, or its last event.
    pub(super) fn sequenced_end(&mut self) -> Option<Update> {
        let process = self.any_sequenced()?;
        let (last, has_exited) = self.sequenced.get_mut(&process)?;
        *last += 1;
        let seq = *last;
        if !std::mem::replace(has_exited, true) {
            let ending = ProcessExit::Code(0);
            return Some(Update::Event(ExecutorEvent::SequencedExited {
                process,
                seq,
                ending,
                is_denied: false,
            }));
        }
        self.sequenced.remove(&process);
        Some(Update::Event(ExecutorEvent::SequencedClosed { process, seq }))
    }

    fn any_sequenced(&mut self) -> Option<ProcessId> {
        let index = usize::from(self.choice()).checked_rem(self.sequenced.len())?;
        self.sequenced.keys().nth(index).cloned()
    }

    fn carry_out_first(&mut self, request: ProcessRequest) -> Result<ProcessReply, ProcessRefusal> {
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
        let event = ProcessEvent::ProcessOutput { process, stream, bytes };
        Some(Update::Event(ExecutorEvent::Process(event)))
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
        Update::Event(ExecutorEvent::Process(ProcessEvent::ProcessExited { process, ending }))
    }
}

fn chunk(seq: u64, choice: u8) -> SequencedChunk {
    let stream =
        [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Terminal][usize::from(choice % 3)];
    SequencedChunk { seq, stream, bytes: Arc::new(vec![choice; usize::from(choice) + 1]) }
}

fn environment(choice: u8) -> EnvironmentInfo {
    EnvironmentInfo {
        session: "session".to_owned(),
        shell_name: "sh",
        shell_path: "/bin/sh".to_owned(),
        folder: choice.is_multiple_of(2).then(|| "/".into()),
        home: None,
        temporary_folder: "/tmp".into(),
    }
}
