//! An engine that keeps its promises and is moody in everything else.

use std::collections::BTreeMap;

use parlor_vocab::{Command, Ending, Event, ProcessId, Refusal, Reply, Stream};

use super::whims::Whims;
use crate::Ticket;

pub(super) enum Happening {
    Answer(Ticket, Result<Reply, Refusal>),
    Event(Event),
}

pub(super) struct Engine<'a> {
    whims: Whims<'a>,
    /// Who has not exited, and whether it was told to end.
    living: BTreeMap<ProcessId, bool>,
    questions: Vec<(Ticket, Command)>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(whims: &'a [u8]) -> Self {
        Self { whims: Whims::new(whims), living: BTreeMap::new(), questions: Vec::new() }
    }

    pub(super) fn ask(&mut self, ticket: Ticket, command: Command) {
        self.questions.push((ticket, command));
    }

    fn whim(&mut self) -> u8 {
        self.whims.next()
    }

    /// How many things are to happen before the next frame.
    pub(super) fn zeal(&mut self) -> u8 {
        self.whims.zeal()
    }

    pub(super) fn act(&mut self) -> Option<Happening> {
        match self.whim() % 4 {
            0 | 1 => self.answer(),
            2 => self.output(),
            _ => self.exit(),
        }
    }

    /// Answers any of the open questions, or comes closer to it.
    pub(super) fn answer(&mut self) -> Option<Happening> {
        let index = usize::from(self.whim()).checked_rem(self.questions.len())?;
        if let (_, Command::StartProcess(start)) = &self.questions[index] {
            let name = start.process.clone();
            if self.living.get(&name) == Some(&true) {
                return Some(self.exit_of(name)); // A name is free for the next once this was told.
            }
        }
        let (ticket, command) = self.questions.remove(index);
        Some(Happening::Answer(ticket, self.decide(command)))
    }

    fn decide(&mut self, command: Command) -> Result<Reply, Refusal> {
        let whim = self.whim();
        match command {
            Command::StartProcess(start) => match whim % 4 {
                _ if self.living.contains_key(&start.process) => Err(Refusal::ProcessExists(start.process)),
                0 => {
                    self.living.insert(start.process, false);
                    Ok(Reply::ProcessStarted)
                }
                1 => Err(Refusal::CannotStart { attempt: start.program, reason: "whim".to_owned() }),
                2 => Err(Refusal::RelativeFolder(start.folder.display().to_string())),
                _ => Err(Refusal::TooManyProcesses { limit: whim.into() }),
            },
            Command::WriteProcess { process, .. } => match whim % 4 {
                _ if self.living.get(&process) != Some(&false) => Err(Refusal::UnknownProcess(process)),
                0 => Ok(Reply::WriteAccepted),
                1 => Err(Refusal::StdinClosed(process)),
                2 => Err(Refusal::StdinGone(process)),
                _ => Err(Refusal::StdinFull { process, limit: whim.into(), what: "bytes" }),
            },
            Command::TerminateProcess { process } => {
                let was_running = self.living.get(&process) == Some(&false);
                self.living.entry(process).and_modify(|told_to_end| *told_to_end = true);
                Ok(Reply::ProcessTerminating { was_running })
            }
        }
    }

    fn any_process(&mut self) -> Option<ProcessId> {
        let index = usize::from(self.whim()).checked_rem(self.living.len())?;
        self.living.keys().nth(index).cloned()
    }

    fn output(&mut self) -> Option<Happening> {
        let (process, whim) = (self.any_process()?, self.whim());
        let stream = [Stream::Stdout, Stream::Stderr, Stream::Terminal][usize::from(whim % 3)];
        let bytes = vec![whim; usize::from(whim) + 1];
        Some(Happening::Event(Event::ProcessOutput { process, stream, bytes }))
    }

    pub(super) fn exit(&mut self) -> Option<Happening> {
        let process = self.any_process()?;
        Some(self.exit_of(process))
    }

    fn exit_of(&mut self, process: ProcessId) -> Happening {
        self.living.remove(&process);
        let whim = self.whim();
        let ending = match whim % 4 {
            0 => Ending::Code(whim),
            1 => Ending::Signal(whim.into()),
            2 => Ending::Terminated,
            _ => Ending::Unknown,
        };
        Happening::Event(Event::ProcessExited { process, ending })
    }
}
