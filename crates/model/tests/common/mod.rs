//! A stage that takes down what is done on it. Nothing waits: a pause is over at once, and an agent
//! that awaits anything but the stage is caught.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use parlor_model::{Agent, Halt, Stage, ToolResult, Turn};
use parlor_vocab::{Failure, Input, RunId, Usage};
use serde_json::Value;

/// What was done on the stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Say(String),
    Think(String),
    Call(String, Value),
    Delegate { name: String, agent: String, task: String },
    Pause(Duration),
    Consume(Usage, Option<String>),
}

#[derive(Default)]
pub(crate) struct Recorder {
    /// All acts, those of subagents among them.
    pub(crate) acts: Vec<Act>,
    /// What each subagent gave back, in the order in which they ended.
    pub(crate) returned: Vec<Result<String, Failure>>,
    /// What the tools give back, in turn; then an empty text.
    pub(crate) results: VecDeque<ToolResult>,
    /// What is said to the run once so many acts are done.
    pub(crate) steering: VecDeque<(usize, String)>,
    /// The run is stopped when so many acts are done.
    pub(crate) stop_after: Option<usize>,
    pub(crate) stopped: bool,
}

impl Recorder {
    fn act(&mut self, act: Act) -> Result<(), Halt> {
        assert!(!self.stopped, "after the stop: {act:?}");
        if self.stop_after == Some(self.acts.len()) {
            self.stopped = true;
            return Err(Halt::Stopped);
        }
        self.acts.push(act);
        Ok(())
    }

    /// The message that is being spoken, if speaking was the last thing done.
    fn last_message(&self, since: usize) -> String {
        let spoken = self.acts.iter().skip(since).rev().map_while(|act| match act {
            Act::Say(text) => Some(text.as_str()),
            Act::Think(_) | Act::Call(..) | Act::Delegate { .. } | Act::Pause(_) | Act::Consume(..) => None,
        });
        spoken.collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Everything said, put together.
    pub(crate) fn said(&self) -> String {
        self.says().concat()
    }

    /// Everything said, piece by piece.
    pub(crate) fn says(&self) -> Vec<&str> {
        let says = self.acts.iter().filter_map(|act| match act {
            Act::Say(text) => Some(text.as_str()),
            Act::Think(_) | Act::Call(..) | Act::Delegate { .. } | Act::Pause(_) | Act::Consume(..) => None,
        });
        says.collect()
    }
}

#[async_trait]
impl Stage for Recorder {
    async fn say(&mut self, text: &str) -> Result<(), Halt> {
        self.act(Act::Say(text.to_owned()))
    }

    async fn think(&mut self, text: &str) -> Result<(), Halt> {
        self.act(Act::Think(text.to_owned()))
    }

    async fn call(&mut self, tool: &str, input: &str) -> Result<ToolResult, Halt> {
        let input = serde_json::from_str(input).expect("a tool's input is JSON");
        self.act(Act::Call(tool.to_owned(), input))?;
        Ok(self.results.pop_front().unwrap_or(Ok(String::new())))
    }

    async fn delegate(&mut self, name: &str, task: &str, agent: &dyn Agent) -> Result<ToolResult, Halt> {
        let (name, agent_name) = (name.to_owned(), agent.name().to_owned());
        self.act(Act::Delegate { name, agent: agent_name, task: task.to_owned() })?;
        let since = self.acts.len();
        let result = match agent.answer(&turn(task), self).await {
            Ok(()) => Ok(self.last_message(since)),
            Err(Halt::Failed(failure)) => Err(failure),
            Err(Halt::Stopped) => return Err(Halt::Stopped),
        };
        self.returned.push(result.clone());
        Ok(result)
    }

    async fn consume(&mut self, usage: Usage, model: Option<&str>) -> Result<(), Halt> {
        self.act(Act::Consume(usage, model.map(str::to_owned)))
    }

    async fn pause(&mut self, duration: Duration) -> Result<(), Halt> {
        self.act(Act::Pause(duration))
    }

    fn heard(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some((_, text)) = self.steering.pop_front_if(|(after, _)| *after <= self.acts.len()) {
            heard.push(text);
        }
        heard
    }
}

pub(crate) fn turn(text: &str) -> Turn {
    Turn {
        run: RunId::parse("run_1").expect("a short id"),
        input: Input { text: text.to_owned(), ..Input::default() },
        history: Vec::new(),
        system: None,
        model: Some("m1".to_owned()),
    }
}

/// Lets `agent` answer `prompt` on `stage`.
pub(crate) fn perform(agent: &dyn Agent, prompt: &str, stage: &mut Recorder) -> Result<(), Halt> {
    perform_turn(agent, &turn(prompt), stage)
}

/// Lets `agent` perform `turn` on `stage`.
pub(crate) fn perform_turn(agent: &dyn Agent, turn: &Turn, stage: &mut Recorder) -> Result<(), Halt> {
    let future = pin!(agent.answer(turn, stage));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => panic!("the agent waits for something that is not the stage"),
    }
}

/// Performs `prompt` to its end, then again and again, stopped before each act: the stop must be
/// passed on, nothing may follow it, and what came before must be the same. Gives back the whole.
pub(crate) fn perform_and_stop_everywhere(agent: &dyn Agent, prompt: &str) -> (Recorder, Result<(), Halt>) {
    let mut whole = Recorder::default();
    let end = perform(agent, prompt, &mut whole);
    for acts in 0..whole.acts.len() {
        let mut stage = Recorder { stop_after: Some(acts), ..Recorder::default() };
        assert_eq!(perform(agent, prompt, &mut stage), Err(Halt::Stopped), "stopped after {acts} acts");
        assert_eq!(stage.acts, whole.acts[..acts]);
    }
    (whole, end)
}
