//! Sample events of every kind, with optional members present and absent.

use parlor_vocab::*;

pub(super) fn all() -> Vec<SessionEvent> {
    let t = str::to_owned;
    let (agent, run, message) =
        (id(AgentId::parse, "a"), id(RunId::parse, "run_1"), id(MessageId::parse, "msg_1"));
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
        can_answer: true,
        is_attended: true,
    };
    let sample_message =
        |role| Message { id: message.clone(), role, text: t("ü"), media: vec![media.clone()] };
    let new_session = NewSession {
        title: Some(t("T")),
        door: t("chat"),
        folder: "/w".into(),
        choice: choice(Reasoning::Adaptive),
        system: Some(t("be kind")),
        forked_from: Some(ForkOrigin { session: id(SessionId::parse, "old"), message: message.clone() }),
    };
    let bare = NewSession {
        title: None,
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
        SessionEvent::Unqueued { runs: vec![run.clone(), id(RunId::parse, "run_2")] },
        SessionEvent::Cleared,
        SessionEvent::Compacted { summary: sample_message(Role::User), kept_from: Some(message.clone()) },
        SessionEvent::Compacted { summary: sample_message(Role::Assistant), kept_from: None },
        SessionEvent::MessageAdded(sample_message(Role::System)),
    ];
    let in_run = |(index, event)| SessionEvent::Run { run: run.clone(), sequence: index as u64 + 1, event };
    events.extend(run_events(&agent, input, &message, media, &failure).into_iter().enumerate().map(in_run));
    events.push(SessionEvent::ModeChosen { mode: PolicyMode::ReadOnly });
    events
}

fn run_events(
    agent: &AgentId,
    input: UserInput,
    message: &MessageId,
    media: Media,
    failure: &Failure,
) -> Vec<RunEvent> {
    let t = str::to_owned;
    let (step, call, child) =
        (id(StepId::parse, "s1"), id(ToolCallId::parse, "c1"), id(RunId::parse, "run_2"));
    let (duration_ms, title) = (7, t("plan"));
    let message = || message.clone();
    let failure = || failure.clone();
    let started = |parent, model, input| RunEvent::Started {
        parent,
        agent: agent.clone(),
        model,
        missing_agent: None,
        input,
        message: message(),
    };
    let called = |input: &str| {
        RunEvent::Tool(ToolEvent::Called {
            step: step.clone(),
            call: call.clone(),
            tool: t("shell"),
            input: t(input),
        })
    };
    let usage = Usage {
        input_tokens: 1,
        output_tokens: 2,
        cache_read_tokens: 3,
        cache_write_tokens: 4,
        cost_micros: 5,
    };
    vec![
        started(Some(child.clone()), Some(t("m")), input),
        started(None, None, UserInput::default()),
        RunEvent::Steered { input: UserInput { text: t("no"), ..UserInput::default() }, message: message() },
        RunEvent::Message(MessageEvent::Started { message: message() }),
        RunEvent::Message(MessageEvent::Completed {
            message: message(),
            text: t("two\nlines"),
            media: vec![media],
        }),
        RunEvent::Message(MessageEvent::Completed { message: message(), text: t(""), media: vec![] }),
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
        RunEvent::Step(StepEvent::Failed { step: step.clone(), failure: failure(), duration_ms }),
        RunEvent::Step(StepEvent::Reasoned { step: step.clone(), text: t("hm") }),
        called("{\"b\": 1,\n \"a\": [true, null]}"),
        called("no JSON"),
        RunEvent::Tool(ToolEvent::Progressed { call: call.clone(), message: t("w"), percent: 255 }),
        RunEvent::Tool(ToolEvent::Completed {
            call: call.clone(),
            output: t("o"),
            details: None,
            duration_ms,
        }),
        RunEvent::Tool(ToolEvent::Failed { call: call.clone(), failure: failure(), duration_ms }),
        RunEvent::Subagent(SubagentEvent::Started {
            child: child.clone(),
            name: t("scout"),
            task: t("look"),
        }),
        RunEvent::Subagent(SubagentEvent::Updated { child: child.clone(), status: t("looks") }),
        RunEvent::Subagent(SubagentEvent::Done { child: child.clone(), result: Ok(t("fine")), duration_ms }),
        RunEvent::Subagent(SubagentEvent::Done { child, result: Err(failure()), duration_ms }),
        RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure() },
        RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure: failure() },
        RunEvent::UsageAdded { usage, model: Some(t("m")) },
        RunEvent::UsageAdded { usage, model: None },
        RunEvent::Ended { ending: RunEnding::Completed { message: Some(message()) }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Failed(failure()), duration_ms },
        RunEvent::Ended {
            ending: RunEnding::Stopped { cause: StopCause::Client { reason: t("r") }, message: message() },
            duration_ms,
        },
        RunEvent::Started {
            parent: None,
            agent: agent.clone(),
            model: None,
            missing_agent: Some(agent.clone()),
            input: UserInput {
                by: Some(Sender { door: t("loaf"), client: Some(t("tui")) }),
                ..UserInput::default()
            },
            message: message(),
        },
        RunEvent::Question(QuestionEvent::Asked(Question {
            id: question(),
            kind: QuestionKind::Call,
            call: id(ToolCallId::parse, "c1"),
            tool: t("shell"),
            title: t("Run `git push`"),
            reason: t("a rule"),
            detail: t("git push"),
            remembered: Some(PolicyRule {
                command: Some(t("git push")),
                ..PolicyRule::new(RuleAction::Allow)
            }),
            is_repeatable: true,
        })),
        RunEvent::Question(QuestionEvent::Settled {
            question: question(),
            outcome: QuestionOutcome::Answered {
                answer: QuestionAnswer::Deny { message: Some(t("not now")) },
                by: Some(Sender::at("chat")),
            },
        }),
        RunEvent::Question(QuestionEvent::Settled {
            question: question(),
            outcome: QuestionOutcome::Expired,
        }),
    ]
}

fn question() -> QuestionId {
    id(QuestionId::parse, "qst_1")
}

fn id<T>(parse: fn(&str) -> Result<T, IdError>, text: &str) -> T {
    parse(text).unwrap()
}
