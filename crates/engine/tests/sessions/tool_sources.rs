//! The tools of a run: parlor's own, and those of sources. How the progress of calls is recorded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::policy::{PolicySettings, ProjectPolicy, Rule, RuleSource};
use parlor_engine::{ProjectPolicies, REPORT_BYTES, REPORT_INTERVAL, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, Turn, TurnError};
use parlor_tools::{OfferedTools, PassedCall, ProgressReport, Tool, ToolContext, ToolSource, Toolbox};
use parlor_vocab::{
    Failure, MessageEvent, PolicyMode, PolicyRule, RuleAction, RunEvent, Seq, SessionCommand, ToolEvent,
    ToolOutput, truncate_middle,
};
use serde_json::{Value, json};

use crate::common::{TestSession, deps, new_session, run_event};

/// A tool that reports its progress and answers with its text.
struct NamedTool {
    name: String,
    answer: String,
}

#[async_trait]
impl Tool for NamedTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        "Answers."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    async fn call(&self, _: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        for (done, pause) in [(1.0, Duration::ZERO), (2.0, REPORT_INTERVAL), (3.0, Duration::ZERO)] {
            let message = Some(format!("{done} {}", "x".repeat(2 * REPORT_BYTES)));
            context.progress.report(ProgressReport { done, total: Some(4.0), message });
            // The run driver reads each report before the next one.
            tokio::task::yield_now().await;
            tokio::time::sleep(pause).await;
        }
        Ok(ToolOutput::text(&*self.answer))
    }
}

/// Offers one tool; or hangs, or panics, if its name says so.
struct NamedSource {
    tool: &'static str,
    answer: String,
}

#[async_trait]
impl ToolSource for NamedSource {
    async fn tools(&self, folder: &Path) -> OfferedTools {
        assert_eq!(folder, new_session().folder);
        match self.tool {
            "hang" => std::future::pending().await,
            "panic" => panic!("a source panics"),
            _ => {}
        }
        let tool = NamedTool { name: self.tool.to_owned(), answer: self.answer.clone() };
        OfferedTools { tools: vec![Arc::new(tool)], notices: vec![format!("{} is late.", self.tool)] }
    }
}

fn source(tool: &'static str, answer: &str) -> Arc<dyn ToolSource> {
    Arc::new(NamedSource { tool, answer: answer.to_owned() })
}

/// Writes the names of its tools and the notices. If the input is a tool, calls that instead.
struct ListingAgent;

#[async_trait]
impl Agent for ListingAgent {
    fn name(&self) -> &str {
        "Lister"
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        if turn.input.text != "list" {
            let result = context.call_tool(&turn.input.text, "{}").await?;
            return context.write_text(&result.unwrap_or_else(|failure| failure.message)).await;
        }
        let available = context.tools().await?;
        let names: Vec<&str> = available.tools.iter().map(|tool| tool.name.as_str()).collect();
        let text = format!("{} | {}", names.join(" "), available.notices.join(" "));
        context.write_text(&text).await
    }
}

async fn start(with: impl FnOnce(Sessions) -> Sessions) -> TestSession {
    let clock = Arc::new(SystemClock);
    let log = Arc::new(MemoryLog::new(Arc::clone(&clock) as _));
    let tools = Toolbox::new().with(NamedTool { name: "own".to_owned(), answer: "own answer".to_owned() });
    let sessions = with(Sessions::new(SessionDeps { tools, ..deps(&log, Arc::new(ListingAgent), clock) }));
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    TestSession { sessions, session, watcher }
}

async fn answer_to(test: &mut TestSession, input: &str) -> String {
    let run = test.send(input).await;
    let (updates, _) = test.end_of(&run).await;
    let text = updates.iter().find_map(|update| match run_event(update, &run)? {
        (_, _, RunEvent::Message(MessageEvent::Completed { text, .. })) => Some(text.clone()),
        _ => None,
    });
    text.expect("the agent answers")
}

#[tokio::test(start_paused = true)]
async fn a_run_has_the_tools_of_all_sources_and_own_tools_keep_their_names() {
    let mut test = start(|sessions| {
        sessions.with_tool_source(source("own", "other answer")).with_tool_source(source("panic", ""))
    })
    .await;
    let listed = answer_to(&mut test, "list").await;
    assert!(listed.starts_with("own own_2 | own is late. A source of tools ended"), "{listed}");
    assert_eq!(answer_to(&mut test, "own").await, "own answer");
    assert_eq!(answer_to(&mut test, "own_2").await, "other answer");
}

#[tokio::test(start_paused = true)]
async fn own_tools_do_not_wait_for_sources_and_a_stop_ends_the_wait() {
    let mut test = start(|sessions| sessions.with_tool_source(source("hang", ""))).await;
    assert_eq!(answer_to(&mut test, "own").await, "own answer");
    let run = test.send("list").await;
    test.sessions.execute(&test.session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    test.end_of(&run).await;
}

/// The clock moves only when everything waits for it, so the second report comes at once after the first.
#[tokio::test(start_paused = true)]
async fn the_progress_of_a_call_is_recorded_within_limits() {
    let mut test = start(|sessions| sessions).await;
    let run = test.send("own").await;
    let (updates, _) = test.end_of(&run).await;
    let reports = updates.iter().filter_map(|update| match run_event(update, &run)? {
        (_, _, RunEvent::Tool(ToolEvent::Progressed { message, percent, .. })) => {
            Some((message.clone(), *percent))
        }
        _ => None,
    });
    let reports: Vec<(String, u8)> = reports.filter(|(message, _)| message.len() > REPORT_BYTES).collect();
    let expected = [(1, 25), (3, 75)].map(|(done, percent)| {
        let sent = format!("{done} {}", "x".repeat(2 * REPORT_BYTES));
        (truncate_middle(&sent, REPORT_BYTES).into_owned(), percent)
    });
    assert_eq!(reports, expected);
}

/// A tool that passes its call on to `hidden`, as `mcp_call` does.
struct PassingTool(Arc<NamedTool>);

#[async_trait]
impl Tool for PassingTool {
    fn name(&self) -> &str {
        "pass"
    }

    fn description(&self) -> &str {
        "Passes a call on."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn passes_on(&self, input: &str) -> Result<Option<PassedCall>, Failure> {
        Ok(Some(PassedCall { tool: Arc::clone(&self.0) as _, input: input.to_owned() }))
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        self.0.call(input, context).await
    }
}

/// No project has rules.
struct NoRules;

impl ProjectPolicies for NoRules {
    fn read(&self, _: &Path) -> Result<ProjectPolicy, String> {
        Ok(ProjectPolicy::default())
    }

    fn remembered(&self, _: &Path) -> Result<Vec<Rule>, String> {
        Ok(Vec::new())
    }

    fn remember(&self, _: &Path, _: &PolicyRule) -> Result<(), String> {
        Ok(())
    }
}

/// The answer to a call of `pass`, which passes it on to `hidden`, with these rules for tools.
async fn passed_with(rules: &[(RuleAction, &str)]) -> String {
    let rule = |(action, tool): &(RuleAction, &str)| {
        let written = PolicyRule { tool: Some((*tool).to_owned()), ..PolicyRule::new(*action) };
        Rule::new(written, RuleSource::Settings, None).expect("a valid rule")
    };
    let settings = PolicySettings {
        rules: rules.iter().map(rule).collect(),
        enforces_all: true,
        mode: PolicyMode::Full,
        ..PolicySettings::default()
    };
    let clock = Arc::new(SystemClock);
    let log = Arc::new(MemoryLog::new(Arc::clone(&clock) as _));
    let hidden = NamedTool { name: "hidden".to_owned(), answer: "hidden answer".to_owned() };
    let tools = Toolbox::new().with(PassingTool(Arc::new(hidden)));
    let deps = SessionDeps { tools, ..deps(&log, Arc::new(ListingAgent), clock) };
    let sessions = Sessions::new(deps).with_policy(settings, Arc::new(NoRules));
    let session = sessions.create(None, new_session()).await.expect("a session");
    let watcher = sessions.watch(&session, Seq::START).await;
    answer_to(&mut TestSession { sessions, session, watcher }, "pass").await
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_a_tool_holds_for_a_call_that_another_tool_passes_on() {
    use RuleAction::{Allow, Deny};
    assert_eq!(passed_with(&[(Allow, "*")]).await, "hidden answer");
    let refused = passed_with(&[(Allow, "*"), (Allow, "pass"), (Deny, "hidden")]).await;
    assert!(refused.contains("the policy refuses this call"), "{refused}");
    let refused = passed_with(&[(Allow, "*"), (Deny, "pass"), (Allow, "hidden")]).await;
    assert!(refused.contains("the policy refuses this call"), "{refused}");
}
