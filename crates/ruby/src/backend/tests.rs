//! Tests of the backend with test tools and without Ruby.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_vocab::{
    Backend, Caller, Clock, Failure, RubyJob, RubyRefusal, RubyReply, RubyRequest, Ticket, Timestamp,
    ToolInfo, ToolOutput, Update,
};
use tokio::sync::{Semaphore, watch};

use super::*;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// A tool that counts its running calls, and lets none return before the test allows it.
struct GatedTool {
    running: watch::Sender<usize>,
    permits: Arc<Semaphore>,
}

#[async_trait]
impl ToolRunner for GatedTool {
    fn list(&self) -> Vec<ToolInfo> {
        Vec::new()
    }

    async fn call(&self, name: &str, _input: &str) -> Option<Result<ToolOutput, Failure>> {
        if name != "gate" {
            return None;
        }
        self.running.send_modify(|running| *running += 1);
        let _ = self.permits.acquire().await;
        self.running.send_modify(|running| *running -= 1);
        Some(Ok(ToolOutput::text("through")))
    }

    async fn close(&self) {}
}

fn open(folder: &std::path::Path, tools: Option<Arc<dyn ToolRunner>>) -> RubyBackend {
    RubyBackend::open(RubyBackendConfig {
        ruby: crate::RubySettings::new(folder.to_owned(), Vec::new()),
        state: folder.join("state"),
        roots: AllowedRoots::new(folder.to_owned(), None),
        upstream: None,
        tools,
        clock: Arc::new(FixedClock),
        format_time: |_| "2026-03-14T09:15:00.000".to_owned(),
    })
    .unwrap()
}

fn call(tool: &str) -> RubyRequest {
    let job = RubyJob::Tool { name: tool.to_owned(), input: "{}".to_owned() };
    RubyRequest::Call { repeat: None, caller: Caller::default(), job: Box::new(job) }
}

#[tokio::test]
async fn a_limited_number_of_tool_calls_runs_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (running, mut seen) = watch::channel(0);
    let permits = Arc::new(Semaphore::new(0));
    let backend = open(folder.path(), Some(Arc::new(GatedTool { running, permits: Arc::clone(&permits) })));
    let mut connections: Vec<RubyConnection> =
        (0..MAX_TOOL_CALLS + 4).map(|_| backend.connect(Box::new(|| false))).collect();
    for connection in &mut connections {
        assert!(connection.submit(Ticket(0), call("gate")).is_none());
    }
    seen.wait_for(|running| *running == MAX_TOOL_CALLS).await.unwrap();
    // Lets other tasks run: a call that could start would start now.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*seen.borrow(), MAX_TOOL_CALLS);
    permits.add_permits(1);
    for connection in &mut connections {
        let Some(Update::Answer(_, Ok(reply))) = connection.next().await else { panic!("a reply") };
        assert!(matches!(&*reply, RubyReply::Tool(Ok(output)) if output.text == "through"));
    }
}

#[tokio::test]
async fn a_connection_has_one_request_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let backend = open(folder.path(), None);
    let mut connection = backend.connect(Box::new(|| false));
    assert!(connection.submit(Ticket(1), call("nothing")).is_none());
    let refused = connection.submit(Ticket(2), call("nothing")).unwrap();
    assert_eq!(refused, (Ticket(2), Err(RubyRefusal::TooManyRequests { limit: 1 })));
    let unknown = RubyReply::UnknownTool { name: "nothing".to_owned() };
    assert_eq!(connection.next().await, Some(Update::Answer(Ticket(1), Ok(Arc::new(unknown)))));
    connection.begin_close();
    assert!(connection.next().await.is_none());
}
