//! Sample events of every kind: a fixed list, and a proptest strategy.

use std::os::unix::ffi::OsStringExt;

use parlor_vocab::*;
use proptest::prelude::*;

/// The number of different names that [`name`] returns.
pub(crate) const VARIANTS: usize = 30;

/// At least one of each kind, with optional parts present and absent.
pub(crate) fn all() -> Vec<SessionEvent> {
    let t = str::to_owned;
    let (agent, run, message) =
        (id(AgentId::parse, "a"), id(RunId::parse, "run_1"), id(MessageId::parse, "msg_1"));
    let (step, call, child) =
        (id(StepId::parse, "s1"), id(ToolCallId::parse, "c1"), id(RunId::parse, "run_2"));
    let failure = Failure { code: "X".into(), message: t("went \"wrong\"\n"), retryable: true };
    let media = Media { id: id(MediaId::parse, "ab"), name: t("n"), mime: t("image/png"), size: u64::MAX };
    let choice = |reasoning| AgentChoice {
        agent: Some(agent.clone()),
        model: Some(t("m")),
        reasoning: Some(reasoning),
    };
    let input = UserInput {
        text: t("hi"),
        media: vec![media.clone()],
        choice: choice(Reasoning::Xhigh),
        key: Some(t("k")),
        traceparent: Some(t("00-1-2-01")),
        by: None,
        can_answer: false,
        is_attended: false,
    };
    let message_by = |role| Message { id: message.clone(), role, text: t("ü"), media: vec![media.clone()] };
    let new_session = NewSession {
        title: Some(t("T")),
        door: t("supr"),
        folder: "/w".into(),
        choice: choice(Reasoning::Adaptive),
        system: Some(t("be kind")),
        forked_from: Some(ForkOrigin { session: id(SessionId::parse, "old"), message: message.clone() }),
    };
    let bare = NewSession {
        title: None,
        folder: std::ffi::OsString::from_vec(b"/w\xff".to_vec()).into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
        ..new_session.clone()
    };
    let mut events = vec![
        SessionEvent::Created(new_session),
        SessionEvent::Created(bare),
        SessionEvent::Renamed { title: t("U") },
        SessionEvent::AgentChosen(choice(Reasoning::Off)),
        SessionEvent::AgentChosen(choice(Reasoning::Low)),
        SessionEvent::AgentChosen(choice(Reasoning::Medium)),
        SessionEvent::AgentChosen(choice(Reasoning::High)),
        SessionEvent::AgentChosen(AgentChoice::default()),
        SessionEvent::Queued(QueuedInput { run: run.clone(), input: input.clone() }),
        SessionEvent::Unqueued { runs: vec![run.clone(), child.clone()] },
        SessionEvent::Cleared,
        SessionEvent::Compacted { summary: message_by(Role::User), kept_from: Some(message.clone()) },
        SessionEvent::Compacted { summary: message_by(Role::Assistant), kept_from: None },
        SessionEvent::MessageAdded(message_by(Role::System)),
    ];
    let usage = Usage {
        input_tokens: 1,
        output_tokens: 2,
        cache_read_tokens: 3,
        cache_write_tokens: 4,
        cost_micros: 5,
    };
    let started = |parent, model, input| RunEvent::Started {
        parent,
        agent: agent.clone(),
        model,
        missing_agent: None,
        input,
        message: message.clone(),
    };
    let with_missing_agent = RunEvent::Started {
        parent: None,
        agent: agent.clone(),
        model: None,
        missing_agent: Some(agent.clone()),
        input: UserInput {
            by: Some(Sender { door: t("loaf"), client: Some(t("tui")) }),
            ..UserInput::default()
        },
        message: message.clone(),
    };
    let title = t("plan");
    let duration_ms = 7;
    let of_run = vec![
        started(Some(child.clone()), Some(t("m")), input),
        started(None, None, UserInput::default()),
        RunEvent::Steered {
            input: UserInput { text: t("no"), ..UserInput::default() },
            message: message.clone(),
        },
        RunEvent::Message(MessageEvent::Started { message: message.clone() }),
        RunEvent::Message(MessageEvent::Completed {
            message: message.clone(),
            text: t("x"),
            media: vec![media],
        }),
        RunEvent::Message(MessageEvent::Completed { message: message.clone(), text: t(""), media: vec![] }),
        RunEvent::Step(StepEvent::Started {
            step: step.clone(),
            kind: StepKind::Planning,
            title: title.clone(),
        }),
        RunEvent::Step(StepEvent::Started {
            step: step.clone(),
            kind: StepKind::Reasoning,
            title: title.clone(),
        }),
        RunEvent::Step(StepEvent::Started { step: step.clone(), kind: StepKind::Tool, title }),
        RunEvent::Step(StepEvent::Updated { step: step.clone(), headline: t("h"), percent: 50 }),
        RunEvent::Step(StepEvent::Completed { step: step.clone(), summary: t("s"), duration_ms }),
        RunEvent::Step(StepEvent::Failed { step: step.clone(), failure: failure.clone(), duration_ms }),
        RunEvent::Step(StepEvent::Reasoned { step: step.clone(), text: t("hm") }),
        RunEvent::Tool(ToolEvent::Called {
            step,
            call: call.clone(),
            tool: t("shell"),
            input: t("{\"a\":1}"),
        }),
        RunEvent::Tool(ToolEvent::Progressed { call: call.clone(), message: t("w"), percent: 255 }),
        RunEvent::Tool(ToolEvent::Completed {
            call: call.clone(),
            output: t("o"),
            details: None,
            duration_ms,
        }),
        RunEvent::Tool(ToolEvent::Failed { call: call.clone(), failure: failure.clone(), duration_ms }),
        RunEvent::Subagent(SubagentEvent::Started {
            child: child.clone(),
            name: t("scout"),
            task: t("look"),
        }),
        RunEvent::Subagent(SubagentEvent::Updated { child: child.clone(), status: t("looks") }),
        RunEvent::Subagent(SubagentEvent::Done { child: child.clone(), result: Ok(t("fine")), duration_ms }),
        RunEvent::Subagent(SubagentEvent::Done { child, result: Err(failure.clone()), duration_ms }),
        RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure.clone() },
        RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure: failure.clone() },
        RunEvent::UsageAdded { usage, model: Some(t("m")) },
        RunEvent::UsageAdded { usage, model: None },
        RunEvent::Ended { ending: RunEnding::Completed { message: Some(message.clone()) }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms },
        RunEvent::Ended {
            ending: RunEnding::Stopped { cause: StopCause::Client { reason: t("r") }, message },
            duration_ms,
        },
        with_missing_agent,
        RunEvent::Question(QuestionEvent::Asked(question(true))),
        RunEvent::Question(QuestionEvent::Asked(question(false))),
        settled(answered(QuestionAnswer::AllowOnce, Some(Sender::at("chat")))),
        settled(answered(QuestionAnswer::AllowAlways, None)),
        settled(answered(QuestionAnswer::Deny { message: Some(t("not now")) }, None)),
        settled(answered(QuestionAnswer::Deny { message: None }, None)),
        settled(QuestionOutcome::Expired),
        settled(QuestionOutcome::Withdrawn),
        RunEvent::Steered {
            input: UserInput { can_answer: true, ..UserInput::default() },
            message: id(MessageId::parse, "msg_2"),
        },
        RunEvent::Question(QuestionEvent::Asked(Question {
            kind: QuestionKind::ProjectTrust,
            ..question(false)
        })),
        RunEvent::Steered {
            input: UserInput { is_attended: true, ..UserInput::default() },
            message: id(MessageId::parse, "msg_3"),
        },
        RunEvent::Question(QuestionEvent::Asked(Question {
            kind: QuestionKind::WiderRights,
            ..question(false)
        })),
        RunEvent::Question(QuestionEvent::Asked(Question { kind: QuestionKind::Host, ..question(false) })),
    ];
    let in_run = |(place, event)| SessionEvent::Run { run: run.clone(), sequence: place as u64 + 1, event };
    events.extend(of_run.into_iter().enumerate().map(in_run));
    let modes = [PolicyMode::ReadOnly, PolicyMode::Workspace, PolicyMode::Full];
    events.extend(modes.map(|mode| SessionEvent::ModeChosen { mode }));
    events.extend(detailed_results());
    events
}

fn question(is_whole: bool) -> Question {
    let t = str::to_owned;
    let rule = PolicyRule {
        tool: Some(t("shell")),
        path: Some(t("src")),
        command: Some(t("git push")),
        host: Some(t("h.example")),
        ..PolicyRule::new(RuleAction::Allow)
    };
    Question {
        id: id(QuestionId::parse, "qst_1"),
        kind: QuestionKind::Call,
        call: id(ToolCallId::parse, "c1"),
        tool: t("shell"),
        title: t("Run"),
        reason: t("a rule"),
        detail: t("git push"),
        remembered: is_whole.then_some(rule),
        is_repeatable: is_whole,
    }
}

fn answered(answer: QuestionAnswer, by: Option<Sender>) -> QuestionOutcome {
    QuestionOutcome::Answered { answer, by }
}

fn settled(outcome: QuestionOutcome) -> RunEvent {
    RunEvent::Question(QuestionEvent::Settled { question: id(QuestionId::parse, "qst_1"), outcome })
}

/// Results with more than a text.
fn detailed_results() -> [SessionEvent; 2] {
    let event = |sequence, details: ToolDetails| {
        let (call, output, details) = (id(ToolCallId::parse, "c1"), "o".to_owned(), Some(Box::new(details)));
        let event = RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms: 7 });
        SessionEvent::Run { run: id(RunId::parse, "run_1"), sequence, event }
    };
    let image =
        Media { id: id(MediaId::parse, "ab"), name: "n".to_owned(), mime: "image/png".to_owned(), size: 3 };
    let resource = |uri: &str, name: Option<&str>, mime: Option<&str>| ToolResource {
        uri: uri.to_owned(),
        name: name.map(str::to_owned),
        mime: mime.map(str::to_owned),
    };
    let structured = ToolDetails { structured: Some("{\"a\":1}".to_owned()), ..ToolDetails::default() };
    let others = ToolDetails {
        annotations: Some(ToolAnnotations::READ_ONLY),
        structured: None,
        images: vec![image],
        resources: vec![resource("file:///x", Some("x"), Some("text/plain")), resource("a:b", None, None)],
        diffs: vec![ToolDiff { path: "f".to_owned(), text: "@@ -1 +1 @@\n-a\n+b\n".to_owned() }],
    };
    [event(1, structured), event(2, others)]
}

/// The kind of an event. There is no `_` arm, so that a new kind does not compile until it is added here and to [`all`].
pub(crate) fn name(event: &SessionEvent) -> &'static str {
    match event {
        SessionEvent::Created(_) => "created",
        SessionEvent::Renamed { .. } => "renamed",
        SessionEvent::AgentChosen(_) => "chosen",
        SessionEvent::ModeChosen { .. } => "mode chosen",
        SessionEvent::Queued(_) => "queued",
        SessionEvent::Unqueued { .. } => "unqueued",
        SessionEvent::Cleared => "cleared",
        SessionEvent::Compacted { .. } => "compacted",
        SessionEvent::MessageAdded(_) => "message added",
        SessionEvent::Run { event, .. } => match event {
            RunEvent::Started { .. } => "started",
            RunEvent::Steered { .. } => "steered",
            RunEvent::Message(MessageEvent::Started { .. }) => "message started",
            RunEvent::Message(MessageEvent::Completed { .. }) => "message completed",
            RunEvent::Step(StepEvent::Started { .. }) => "step started",
            RunEvent::Step(StepEvent::Updated { .. }) => "step updated",
            RunEvent::Step(StepEvent::Completed { .. }) => "step completed",
            RunEvent::Step(StepEvent::Failed { .. }) => "step failed",
            RunEvent::Step(StepEvent::Reasoned { .. }) => "reasoned",
            RunEvent::Tool(ToolEvent::Called { .. }) => "tool called",
            RunEvent::Tool(ToolEvent::Progressed { .. }) => "tool progressed",
            RunEvent::Tool(ToolEvent::Completed { .. }) => "tool completed",
            RunEvent::Tool(ToolEvent::Failed { .. }) => "tool failed",
            RunEvent::Question(QuestionEvent::Asked(_)) => "question asked",
            RunEvent::Question(QuestionEvent::Settled { .. }) => "question settled",
            RunEvent::Subagent(SubagentEvent::Started { .. }) => "subagent started",
            RunEvent::Subagent(SubagentEvent::Updated { .. }) => "subagent updated",
            RunEvent::Subagent(SubagentEvent::Done { .. }) => "subagent done",
            RunEvent::ErrorRaised { .. } => "error raised",
            RunEvent::UsageAdded { .. } => "consumed",
            RunEvent::Ended { .. } => "ended",
        },
    }
}

/// Any event: a sample of [`all`] with random content.
pub(crate) fn any_event() -> impl Strategy<Value = SessionEvent> {
    let content = (any::<String>(), any::<u64>(), any::<u8>(), any::<bool>(), any::<Vec<u8>>());
    (proptest::sample::select(all()), content).prop_map(|(event, (text, number, percent, flag, bytes))| {
        RandomContent { text, number, percent, flag, bytes }.event(event)
    })
}

/// Random content that replaces the content of a sample.
struct RandomContent {
    text: String,
    number: u64,
    percent: u8,
    flag: bool,
    bytes: Vec<u8>,
}

impl RandomContent {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn id<T>(&self, parse: fn(&str) -> Result<T, IdError>) -> T {
        // Too long ids are not the subject of these tests.
        parse(&self.text.chars().take(100).collect::<String>()).unwrap()
    }

    fn choice(&self, choice: AgentChoice) -> AgentChoice {
        AgentChoice {
            agent: choice.agent.map(|_| self.id(AgentId::parse)),
            model: choice.model.map(|_| self.text()),
            ..choice
        }
    }

    fn media(&self, media: Vec<Media>) -> Vec<Media> {
        let (name, mime) = (self.text(), self.text());
        let one = Media { id: self.id(MediaId::parse), name, mime, size: self.number };
        vec![one; media.len() * (self.number % 3) as usize]
    }

    fn input(&self, input: UserInput) -> UserInput {
        UserInput {
            text: self.text(),
            media: self.media(input.media),
            choice: self.choice(input.choice),
            key: input.key.map(|_| self.text()),
            traceparent: input.traceparent.map(|_| self.text()),
            by: input.by.map(|by| Sender { door: self.text(), client: by.client.map(|_| self.text()) }),
            can_answer: self.flag,
            is_attended: self.flag,
        }
    }

    fn message(&self, message: Message) -> Message {
        let media = self.media(message.media);
        Message { id: self.id(MessageId::parse), role: message.role, text: self.text(), media }
    }

    fn failure(&self) -> Failure {
        Failure { code: self.text().as_str().into(), message: self.text(), retryable: self.flag }
    }

    fn event(&self, event: SessionEvent) -> SessionEvent {
        let message = || self.id(MessageId::parse);
        match event {
            SessionEvent::Created(new_session) => SessionEvent::Created(NewSession {
                title: new_session.title.map(|_| self.text()),
                door: self.text(),
                folder: std::ffi::OsString::from_vec(self.bytes.clone()).into(),
                choice: self.choice(new_session.choice),
                system: new_session.system.map(|_| self.text()),
                forked_from: new_session
                    .forked_from
                    .map(|_| ForkOrigin { session: self.id(SessionId::parse), message: message() }),
            }),
            SessionEvent::Renamed { .. } => SessionEvent::Renamed { title: self.text() },
            SessionEvent::AgentChosen(choice) => SessionEvent::AgentChosen(self.choice(choice)),
            SessionEvent::ModeChosen { mode } => SessionEvent::ModeChosen { mode },
            SessionEvent::Queued(queued) => SessionEvent::Queued(QueuedInput {
                run: self.id(RunId::parse),
                input: self.input(queued.input),
            }),
            SessionEvent::Unqueued { .. } => {
                SessionEvent::Unqueued { runs: vec![self.id(RunId::parse); self.percent as usize % 4] }
            }
            SessionEvent::Cleared => SessionEvent::Cleared,
            SessionEvent::Compacted { summary, kept_from } => SessionEvent::Compacted {
                summary: self.message(summary),
                kept_from: kept_from.map(|_| message()),
            },
            SessionEvent::MessageAdded(message) => SessionEvent::MessageAdded(self.message(message)),
            SessionEvent::Run { event, .. } => {
                let (run, sequence) = (self.id(RunId::parse), self.number);
                SessionEvent::Run { run, sequence, event: self.run(event) }
            }
        }
    }

    fn details(&self) -> Option<Box<ToolDetails>> {
        let text = || self.flag.then(|| self.text());
        let annotations = ToolAnnotations { idempotent: self.flag, ..ToolAnnotations::default() };
        let details = ToolDetails {
            annotations: self.flag.then_some(annotations),
            structured: text(),
            images: Vec::new(),
            resources: vec![ToolResource { uri: self.text(), name: text(), mime: text() }],
            diffs: vec![ToolDiff { path: self.text(), text: self.text() }],
        };
        (self.percent > 100).then(|| Box::new(details))
    }

    fn run(&self, event: RunEvent) -> RunEvent {
        let message = || self.id(MessageId::parse);
        let (step, call) = (self.id(StepId::parse), self.id(ToolCallId::parse));
        let (child, failure) = (self.id(RunId::parse), self.failure());
        let (duration_ms, percent, text) = (self.number, self.percent, self.text());
        match event {
            RunEvent::Started { parent, model, missing_agent, input, .. } => RunEvent::Started {
                parent: parent.map(|_| child),
                agent: self.id(AgentId::parse),
                model: model.map(|_| text),
                missing_agent: missing_agent.map(|_| self.id(AgentId::parse)),
                input: self.input(input),
                message: message(),
            },
            RunEvent::Steered { input, .. } => {
                RunEvent::Steered { input: self.input(input), message: message() }
            }
            RunEvent::Message(MessageEvent::Started { .. }) => {
                RunEvent::Message(MessageEvent::Started { message: message() })
            }
            RunEvent::Message(MessageEvent::Completed { media, .. }) => {
                RunEvent::Message(MessageEvent::Completed {
                    message: message(),
                    text,
                    media: self.media(media),
                })
            }
            RunEvent::Step(StepEvent::Started { kind, .. }) => {
                RunEvent::Step(StepEvent::Started { step, kind, title: text })
            }
            RunEvent::Step(StepEvent::Updated { .. }) => {
                RunEvent::Step(StepEvent::Updated { step, headline: text, percent })
            }
            RunEvent::Step(StepEvent::Completed { .. }) => {
                RunEvent::Step(StepEvent::Completed { step, summary: text, duration_ms })
            }
            RunEvent::Step(StepEvent::Failed { .. }) => {
                RunEvent::Step(StepEvent::Failed { step, failure, duration_ms })
            }
            RunEvent::Step(StepEvent::Reasoned { .. }) => RunEvent::Step(StepEvent::Reasoned { step, text }),
            RunEvent::Tool(ToolEvent::Called { .. }) => {
                RunEvent::Tool(ToolEvent::Called { step, call, tool: text.clone(), input: text })
            }
            RunEvent::Tool(ToolEvent::Progressed { .. }) => {
                RunEvent::Tool(ToolEvent::Progressed { call, message: text, percent })
            }
            RunEvent::Tool(ToolEvent::Completed { .. }) => {
                let details = self.details();
                RunEvent::Tool(ToolEvent::Completed { call, output: text, details, duration_ms })
            }
            RunEvent::Tool(ToolEvent::Failed { .. }) => {
                RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms })
            }
            RunEvent::Question(QuestionEvent::Asked(question)) => {
                RunEvent::Question(QuestionEvent::Asked(Question {
                    id: self.id(QuestionId::parse),
                    call,
                    tool: text.clone(),
                    title: text.clone(),
                    reason: text.clone(),
                    detail: text,
                    is_repeatable: self.flag,
                    ..question
                }))
            }
            RunEvent::Question(QuestionEvent::Settled { outcome, .. }) => {
                let outcome = match outcome {
                    QuestionOutcome::Answered { answer: QuestionAnswer::Deny { message }, by } => {
                        answered(QuestionAnswer::Deny { message: message.map(|_| text) }, by)
                    }
                    other @ (QuestionOutcome::Answered { .. }
                    | QuestionOutcome::Expired
                    | QuestionOutcome::Withdrawn) => other,
                };
                let question = self.id(QuestionId::parse);
                RunEvent::Question(QuestionEvent::Settled { question, outcome })
            }
            RunEvent::Subagent(SubagentEvent::Started { .. }) => {
                RunEvent::Subagent(SubagentEvent::Started { child, name: text.clone(), task: text })
            }
            RunEvent::Subagent(SubagentEvent::Updated { .. }) => {
                RunEvent::Subagent(SubagentEvent::Updated { child, status: text })
            }
            RunEvent::Subagent(SubagentEvent::Done { result, .. }) => {
                let result = result.map(|_| text).map_err(|_| failure);
                RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms })
            }
            RunEvent::ErrorRaised { scope: ErrorScope::Run, .. } => {
                RunEvent::ErrorRaised { scope: ErrorScope::Run, failure }
            }
            RunEvent::ErrorRaised { scope: ErrorScope::Tool(_), .. } => {
                RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure }
            }
            RunEvent::UsageAdded { model, .. } => {
                let usage =
                    Usage { cost_micros: self.number, output_tokens: !self.number, ..Usage::default() };
                RunEvent::UsageAdded { usage, model: model.map(|_| text) }
            }
            RunEvent::Ended { ending, .. } => {
                let ending = match ending {
                    RunEnding::Completed { message: last } => {
                        RunEnding::Completed { message: last.map(|_| message()) }
                    }
                    RunEnding::Failed(_) => RunEnding::Failed(failure),
                    RunEnding::Stopped { .. } => {
                        RunEnding::Stopped { cause: StopCause::Client { reason: text }, message: message() }
                    }
                };
                RunEvent::Ended { ending, duration_ms }
            }
        }
    }
}

fn id<T>(parse: fn(&str) -> Result<T, IdError>, text: &str) -> T {
    parse(text).unwrap()
}
