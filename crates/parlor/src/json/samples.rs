//! An event of every kind, with optional parts present and absent.

use parlor_vocab::*;

pub(super) fn all() -> Vec<SessionEvent> {
    let t = str::to_owned;
    let (agent, run, message) =
        (id(AgentId::parse, "a"), id(RunId::parse, "run_1"), id(MessageId::parse, "msg_1"));
    let failure = Failure { code: t("X"), message: t("went \"wrong\"\n"), retryable: true };
    let media = Media { id: id(MediaId::parse, "ab"), name: t("n"), mime: t("image/png"), size: u64::MAX };
    let choice =
        |reasoning| Choice { agent: Some(agent.clone()), model: Some(t("m")), reasoning: Some(reasoning) };
    let input = Input {
        text: t("hi"),
        media: vec![media.clone()],
        choice: choice(Reasoning::Xhigh),
        key: Some(t("k")),
        traceparent: Some(t("00-1-2-01")),
    };
    let said = |role| Message { id: message.clone(), role, text: t("ü"), media: vec![media.clone()] };
    let birth = Birth {
        title: Some(t("T")),
        door: t("chat"),
        folder: "/w".into(),
        choice: choice(Reasoning::Adaptive),
        system: Some(t("be kind")),
        forked_from: Some(Fork { session: id(SessionId::parse, "old"), message: message.clone() }),
    };
    let bare =
        Birth { title: None, choice: Choice::default(), system: None, forked_from: None, ..birth.clone() };
    let mut events = vec![
        SessionEvent::Created(birth),
        SessionEvent::Created(bare),
        SessionEvent::Renamed { title: t("U") },
        SessionEvent::Chosen(choice(Reasoning::Off)),
        SessionEvent::Chosen(choice(Reasoning::Low)),
        SessionEvent::Chosen(choice(Reasoning::Medium)),
        SessionEvent::Chosen(choice(Reasoning::High)),
        SessionEvent::Chosen(Choice::default()),
        SessionEvent::Queued(Queued { run: run.clone(), input: input.clone() }),
        SessionEvent::Unqueued { runs: vec![run.clone(), id(RunId::parse, "run_2")] },
        SessionEvent::Cleared,
        SessionEvent::Compacted { summary: said(Role::User), kept_from: Some(message.clone()) },
        SessionEvent::Compacted { summary: said(Role::Assistant), kept_from: None },
        SessionEvent::MessageAdded(said(Role::System)),
    ];
    let in_run = |(place, event)| SessionEvent::Run { run: run.clone(), sequence: place as u64 + 1, event };
    events.extend(of_run(&agent, input, &message, media, &failure).into_iter().enumerate().map(in_run));
    events
}

fn of_run(
    agent: &AgentId,
    input: Input,
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
        input,
        message: message(),
    };
    let called = |input: &str| RunEvent::ToolCalled {
        step: step.clone(),
        call: call.clone(),
        tool: t("shell"),
        input: t(input),
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
        started(None, None, Input::default()),
        RunEvent::Steered { input: Input { text: t("no"), ..Input::default() }, message: message() },
        RunEvent::MessageStarted { message: message() },
        RunEvent::MessageCompleted { message: message(), text: t("two\nlines"), media: vec![media] },
        RunEvent::MessageCompleted { message: message(), text: t(""), media: vec![] },
        RunEvent::StepStarted { step: step.clone(), kind: StepKind::Planning, title: title.clone() },
        RunEvent::StepStarted { step: step.clone(), kind: StepKind::Reasoning, title: title.clone() },
        RunEvent::StepStarted { step: step.clone(), kind: StepKind::Tool, title },
        RunEvent::StepUpdated { step: step.clone(), headline: t("h"), percent: 50 },
        RunEvent::StepCompleted { step: step.clone(), summary: t("s"), duration_ms },
        RunEvent::StepFailed { step: step.clone(), failure: failure(), duration_ms },
        RunEvent::Reasoned { step: step.clone(), text: t("hm") },
        called("{\"b\": 1,\n \"a\": [true, null]}"),
        called("no JSON"),
        RunEvent::ToolProgressed { call: call.clone(), message: t("w"), percent: 255 },
        RunEvent::ToolCompleted { call: call.clone(), output: t("o"), duration_ms },
        RunEvent::ToolFailed { call: call.clone(), failure: failure(), duration_ms },
        RunEvent::SubagentStarted { child: child.clone(), name: t("scout"), task: t("look") },
        RunEvent::SubagentUpdated { child: child.clone(), status: t("looks") },
        RunEvent::SubagentDone { child: child.clone(), result: Ok(t("fine")), duration_ms },
        RunEvent::SubagentDone { child, result: Err(failure()), duration_ms },
        RunEvent::ErrorRaised { scope: Scope::Run, failure: failure() },
        RunEvent::ErrorRaised { scope: Scope::Tool(call), failure: failure() },
        RunEvent::Consumed { usage, model: Some(t("m")) },
        RunEvent::Consumed { usage, model: None },
        RunEvent::Ended { ending: RunEnding::Completed { message: Some(message()) }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms },
        RunEvent::Ended { ending: RunEnding::Failed(failure()), duration_ms },
        RunEvent::Ended { ending: RunEnding::Stopped { reason: t("r"), message: message() }, duration_ms },
    ]
}

fn id<T>(parse: fn(&str) -> Result<T, IdError>, text: &str) -> T {
    parse(text).unwrap()
}
