//! The workshop with tools that are made for it, and no Ruby.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_tools::{Context, Output, Tool, Toolbox};
use parlor_vocab::{
    CallKey, Caller, Clock, Failure, Refusal, Timestamp, Work, WorkshopCommand, WorkshopReply,
};
use tokio::sync::{Semaphore, watch};

use super::*;

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// A tool that counts who uses it, and lets nobody go before it is told to.
struct Gate {
    inside: watch::Sender<usize>,
    may_go: Arc<Semaphore>,
}

#[async_trait]
impl Tool for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn description(&self) -> &'static str {
        "Waits."
    }

    fn schema(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    async fn call(&self, _input: &str, _context: &Context) -> Result<Output, Failure> {
        self.inside.send_modify(|inside| *inside += 1);
        let _ = self.may_go.acquire().await;
        self.inside.send_modify(|inside| *inside -= 1);
        Ok(Output::text("through"))
    }
}

fn open(folder: &std::path::Path, tools: Option<(Toolbox, Context)>) -> Workshop {
    Workshop::open(WorkshopMeans {
        ruby: parlor_ruby::Settings::new(folder.to_owned(), Vec::new()),
        state: folder.join("state"),
        reach: Reach::new(folder.to_owned(), None),
        sketchup: None,
        tools,
        clock: Arc::new(Stopped),
        spell: |_| "2026-03-14T09:15:00.000".to_owned(),
    })
    .unwrap()
}

fn call(number: u8, tool: &str) -> WorkshopCommand {
    let work = Work::Tool { name: tool.to_owned(), input: "{}".to_owned() };
    WorkshopCommand::Call { key: CallKey([number; 32]), caller: Caller::default(), work: Box::new(work) }
}

#[tokio::test]
async fn so_many_tools_run_at_a_time_and_the_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, mut seen) = watch::channel(0);
    let may_go = Arc::new(Semaphore::new(0));
    let tools = Toolbox::new().with(Gate { inside, may_go: Arc::clone(&may_go) });
    let workshop = open(folder.path(), Some((tools, Context::new(folder.path()).unwrap())));
    let mut benches: Vec<Workbench<()>> = (0..MAX_TOOL_CALLS + 4).map(|_| workshop.bench()).collect();
    for (number, bench) in (0..).zip(&mut benches) {
        assert!(bench.ask((), call(number, "gate")).is_none());
    }
    seen.wait_for(|inside| *inside == MAX_TOOL_CALLS).await.unwrap();
    // Whoever could come in would do so before this task has its turn again.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*seen.borrow(), MAX_TOOL_CALLS);
    may_go.add_permits(1);
    for bench in &mut benches {
        let (_, answer) = bench.next().await.unwrap();
        assert!(matches!(&*answer.unwrap(), WorkshopReply::Tool(Ok(output)) if output.text == "through"));
    }
}

#[tokio::test]
async fn a_connection_has_one_question_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let workshop = open(folder.path(), None);
    let mut bench = workshop.bench();
    assert!(bench.ask(1, call(1, "nothing")).is_none());
    let (question, answer) = bench.ask(2, call(2, "nothing")).unwrap();
    assert_eq!((question, answer.unwrap_err()), (2, Refusal::TooManyQuestions { limit: 1 }));
    let (question, answer) = bench.next().await.unwrap();
    assert_eq!(
        (question, &*answer.unwrap()),
        (1, &WorkshopReply::UnknownTool { name: "nothing".to_owned() })
    );
    bench.leave();
    assert!(bench.next().await.is_none());
}
