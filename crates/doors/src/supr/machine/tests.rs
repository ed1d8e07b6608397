//! Tests that transcripts cannot show: rare answers of the backend, and limits.

use parlor_vocab::{
    AgentId, EventId, FileError, MediaId, MessageId, NamedFile, RunEnding, SessionCommand, StepId,
    ToolCallId, ToolEvent, UserInput,
};

use super::super::{FILES_WAIT, MAX_KEY_BYTES};
use super::*;
use crate::fuzz_harness::DeterministicSource;

fn session() -> SessionId {
    SessionId::parse("own").unwrap()
}

fn params() -> ConnectionParams {
    let source = DeterministicSource::new(Timestamp(7));
    ConnectionParams {
        session: session(),
        after: None,
        watch: Vec::new(),
        streams: false,
        may_send: true,
        traceparent: None,
        frames: Arc::default(),
        agents: Arc::new([("a".to_owned(), "A".to_owned())]),
        folder: "/".into(),
        clock: Arc::clone(&source) as _,
        ids: source,
    }
}

/// A machine that watches a session whose log ends at `head`, for a client that has seen the events up to `seen`.
fn watching(params: ConnectionParams, seen: u64, head: u64) -> SuprMachine {
    let mut machine = SuprMachine::new(params);
    let (_, requests) = drain(&mut machine);
    for (ticket, _) in requests {
        let watching = RegistryReply::Watching { seen: Seq(seen), head: Seq(head) };
        machine.handle(Instant::now(), Input::Answer(ticket, Ok(watching)));
    }
    machine
}

/// The frames and the backend requests in the machine's outbox.
fn drain(machine: &mut SuprMachine) -> (Vec<Value>, Vec<(Ticket, RegistryRequest)>) {
    let (mut frames, mut requests) = (Vec::new(), Vec::new());
    while let Some(output) = machine.poll() {
        match output {
            Output::Send(frame) => frames.push(serde_json::from_slice(&frame).unwrap()),
            Output::SendShared(frame) => frames.push(serde_json::from_slice(&frame).unwrap()),
            Output::Request(ticket, command) => requests.push((ticket, command)),
            Output::WakeAt(_) | Output::Close => panic!("{output:?}"),
        }
    }
    (frames, requests)
}

fn send_frame(machine: &mut SuprMachine, frame: &str) {
    machine.handle(Instant::now(), Input::Frame(frame.as_bytes()));
}

fn send_entry(machine: &mut SuprMachine, seq: u64, event: SessionEvent) -> Vec<Value> {
    let id = EventId::parse(&format!("evt_{seq}")).unwrap();
    let entry = Arc::new(Entry { seq: Seq(seq), id, at: Timestamp(7), event });
    let event = RegistryEvent { session: session(), update: SessionUpdate::Entry(entry) };
    machine.handle(Instant::now(), Input::Event(&event));
    drain(machine).0
}

fn run_event(sequence: u64, event: RunEvent) -> SessionEvent {
    SessionEvent::Run { run: RunId::parse("run_1").unwrap(), sequence, event }
}

fn started(traceparent: Option<&str>) -> SessionEvent {
    let input = UserInput { traceparent: traceparent.map(str::to_owned), ..UserInput::default() };
    let (agent, message) = (AgentId::parse("a").unwrap(), MessageId::parse("msg_1").unwrap());
    let (parent, model, missing_agent) = (None, None, None);
    run_event(1, RunEvent::Started { parent, agent, model, missing_agent, input, message })
}

#[test]
fn the_number_of_waiting_frames_is_limited() {
    let mut machine = watching(params(), 0, 0);
    let stop = r#"{"type":"run.stop"}"#;
    (0..=MAX_WAITING_FRAMES).for_each(|_| {
        assert!(machine.wants_frame());
        send_frame(&mut machine, stop);
    });
    assert!(!machine.wants_frame());
    let (_, requests) = drain(&mut machine);
    assert_eq!(requests.len(), 1);
    machine.handle(Instant::now(), Input::Answer(requests[0].0, Err(SessionRefusal::NoActiveRun)));
    assert!(machine.wants_frame());
}

#[test]
fn a_ping_does_not_overtake_the_refusal_of_the_frame_before_it() {
    let mut machine = watching(params(), 0, 0);
    send_frame(&mut machine, r#"{"type":"run.stop"}"#);
    send_frame(&mut machine, r#"{"type":"ping","id":"p"}"#);
    let (frames, requests) = drain(&mut machine);
    assert_eq!((frames, requests.len()), (Vec::new(), 1));
    answer(&mut machine, requests[0].0, Err(SessionRefusal::NoActiveRun));
    let (frames, _) = drain(&mut machine);
    assert_eq!((&frames[0]["payload"]["code"], &frames[1]["id"]), (&json!("no_active_run"), &json!("p")));
}

#[test]
fn the_bytes_of_waiting_frames_are_limited() {
    let mut machine = watching(params(), 0, 0);
    let padded = |bytes: usize| format!("{}{}", r#"{"type":"run.stop"}"#, " ".repeat(bytes - 19));
    send_frame(&mut machine, &padded(19));
    send_frame(&mut machine, &padded(MAX_WAITING_BYTES - 20));
    assert!(machine.wants_frame());
    send_frame(&mut machine, &padded(20));
    assert!(!machine.wants_frame());
}

#[test]
fn a_key_at_the_limit_is_used_and_a_longer_one_is_ignored() {
    for (bytes, is_used) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
        let mut machine = watching(params(), 0, 0);
        let payload = json!({"content": "x", "key": "k".repeat(bytes)});
        send_frame(&mut machine, &json!({"type": "message.send", "payload": payload}).to_string());
        let (_, requests) = drain(&mut machine);
        let RegistryRequest::Session(_, SessionCommand::Send { input, .. }) = &requests[0].1 else {
            panic!()
        };
        assert_eq!(input.key.is_some(), is_used);
    }
}

#[test]
fn a_refused_watch_closes_the_connection() {
    let mut machine = SuprMachine::new(params());
    let (_, requests) = drain(&mut machine);
    let refused = Err(SessionRefusal::LogUnavailable { reason: "full".to_owned() });
    machine.handle(Instant::now(), Input::Answer(requests[0].0, refused));
    assert_eq!(machine.poll(), Some(Output::Close));
}

#[test]
fn files_of_an_answer_are_sent_after_it() {
    let mut machine = watching(params(), 0, 0);
    send_entry(&mut machine, 2, started(None));
    let media = |name: &str, mime: &str| Media {
        id: MediaId::parse(name).unwrap(),
        name: name.to_owned(),
        mime: mime.to_owned(),
        size: 2,
    };
    let media = vec![media("a.png", "image/png"), media("gone", "text/plain"), media("b.bin", "x/y")];
    let message = MessageId::parse("msg_2").unwrap();
    let said =
        run_event(2, RunEvent::Message(MessageEvent::Completed { message, text: "look".to_owned(), media }));
    let id = EventId::parse("evt_3").unwrap();
    let entry = Arc::new(Entry { seq: Seq(3), id, at: Timestamp(7), event: said });
    let event = RegistryEvent { session: session(), update: SessionUpdate::Entry(entry) };
    machine.handle(Instant::now(), Input::Event(&event));
    let (frames, requests) = drain(&mut machine);
    assert_eq!(frames[0]["event_type"], "message.completed");
    let RegistryRequest::ReadMedia { ids, max_bytes } = &requests[0].1 else { panic!("{requests:?}") };
    assert_eq!((ids.len(), *max_bytes), (3, MAX_SENT_MEDIA_BYTES));
    let contents = vec![Some(b"hi".to_vec()), None, Some(Vec::new())];
    machine.handle(Instant::now(), Input::Answer(requests[0].0, Ok(RegistryReply::Contents(contents))));
    let sent = |kind: &str, data: &str, name: &str, mime: &str| {
        json!({"type": "media.create", "session_id": "own", "timestamp": 7, "payload": {
            "type": kind, "data": data, "filename": name, "content_type": mime, "caption": ""}})
    };
    let expected = [sent("image", "aGk=", "a.png", "image/png"), sent("file", "", "b.bin", "x/y")];
    assert_eq!(drain(&mut machine).0, expected);
}

#[test]
fn only_clients_that_stream_get_plain_text() {
    let output = || "# x".to_owned();
    for (streams, expected) in
        [(true, json!(["# x", "plain"])), (false, json!(["```\n# x\n```", "markdown"]))]
    {
        let mut machine = watching(ConnectionParams { streams, ..params() }, 0, 0);
        send_entry(&mut machine, 2, started(None));
        let (call, step) = (ToolCallId::parse("c").unwrap(), StepId::parse("s").unwrap());
        let (tool, input) = ("shell".to_owned(), String::new());
        let message = MessageId::parse("msg_2").unwrap();
        let events = [
            RunEvent::Tool(ToolEvent::Called { step, call: call.clone(), tool, input }),
            RunEvent::Tool(ToolEvent::Completed { call, output: output(), details: None, duration_ms: 1 }),
            RunEvent::Message(MessageEvent::Started { message: message.clone() }),
            RunEvent::Message(MessageEvent::Completed { message, text: output(), media: Vec::new() }),
        ];
        let mut data = Value::Null;
        for (event, number) in events.into_iter().zip(2..) {
            data = send_entry(&mut machine, number + 1, run_event(number, event))[0]["data"].take();
        }
        assert_eq!(json!([data["text"], data["format"]]), expected);
    }
}

#[test]
fn connections_share_the_frames_that_are_the_same_for_both() {
    let id = |seq| EventId::parse(&format!("evt_{seq}")).unwrap();
    let message = MessageId::parse("msg_2").unwrap();
    let output = "# x".to_owned();
    let (call, step) = (ToolCallId::parse("c").unwrap(), StepId::parse("s").unwrap());
    let (tool, input) = ("shell".to_owned(), String::new());
    let events = [
        started(None),
        run_event(2, RunEvent::Tool(ToolEvent::Called { step, call: call.clone(), tool, input })),
        run_event(
            3,
            RunEvent::Tool(ToolEvent::Completed {
                call,
                output: output.clone(),
                details: None,
                duration_ms: 1,
            }),
        ),
        run_event(4, RunEvent::Message(MessageEvent::Started { message: message.clone() })),
        run_event(5, RunEvent::Message(MessageEvent::Completed { message, text: output, media: Vec::new() })),
    ];
    let events: Vec<_> = events
        .into_iter()
        .zip(1..)
        .map(|(event, seq)| Arc::new(Entry { seq: Seq(seq), id: id(seq), at: Timestamp(7), event }))
        .collect();
    let frames = |shared: &Arc<SharedFrames>, streams: bool, head: u64| {
        let mut machine =
            watching(ConnectionParams { streams, frames: Arc::clone(shared), ..params() }, 0, head);
        let mut frames = Vec::new();
        for entry in &events {
            let update = SessionUpdate::Entry(Arc::clone(entry));
            machine.handle(Instant::now(), Input::Event(&RegistryEvent { session: session(), update }));
            while let Some(output) = machine.poll() {
                let Output::SendShared(frame) = output else { panic!("{output:?}") };
                frames.push(frame);
            }
        }
        frames
    };
    let shared = Arc::default();
    for (streams, head) in [(false, 0), (true, 0), (false, 9), (true, 9)] {
        let (first, second) = (frames(&shared, streams, head), frames(&shared, streams, head));
        assert_eq!(first, frames(&Arc::default(), streams, head), "streams {streams}, head {head}");
        assert_eq!(first.len(), events.len());
        assert!(first.iter().zip(&second).all(|(one, other)| one.as_ptr() == other.as_ptr()));
    }
}

#[test]
fn steering_and_unqueueing_are_sent() {
    let mut machine = watching(ConnectionParams { streams: true, ..params() }, 0, 0);
    send_entry(&mut machine, 2, started(None));
    let input = UserInput { text: "and this".to_owned(), ..UserInput::default() };
    let steered = RunEvent::Steered { input, message: MessageId::parse("msg_2").unwrap() };
    let frames = send_entry(&mut machine, 3, run_event(2, steered));
    let data = json!({"agent_id": "a", "message_id": "msg_2", "role": "user", "text": "and this"});
    assert_eq!((&frames[0]["event_type"], &frames[0]["data"]), (&json!("message.received"), &data));
    let frames =
        send_entry(&mut machine, 4, SessionEvent::Unqueued { runs: vec![RunId::parse("run_2").unwrap()] });
    assert_eq!(frames[0]["type"], "run.unqueued");
    assert_eq!(frames[0]["payload"], json!({"run_ids": ["run_2"]}));
}

#[test]
fn the_trace_of_the_client_is_on_every_event() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut machine = watching(params(), 0, 0);
    send_entry(&mut machine, 2, started(Some(trace)));
    let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
    let frames = send_entry(&mut machine, 3, run_event(2, ended));
    assert_eq!(frames[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(frames[0]["span_id"], "00f067aa0ba902b7");
    assert_eq!(frames[0]["data"]["final_message_id"], "");
    let mut machine = watching(ConnectionParams { traceparent: Some(trace.to_owned()), ..params() }, 0, 0);
    send_frame(&mut machine, r#"{"type":"message.send","payload":{"content":"x"}}"#);
    let RegistryRequest::Session(_, SessionCommand::Send { input, .. }) = drain(&mut machine).1.remove(0).1
    else {
        panic!("the message is submitted")
    };
    assert_eq!(input.traceparent.as_deref(), Some(trace));
}

#[test]
fn events_of_a_recreated_session_are_not_replay() {
    // The events of the old session were sent as replay.
    let mut machine = watching(ConnectionParams { after: Some(None), ..params() }, 0, 10);
    assert_eq!(send_entry(&mut machine, 9, started(None))[0]["replay"], true);
    let renamed = SessionEvent::Renamed { title: "t".to_owned() };
    assert!(send_entry(&mut machine, 1, renamed.clone()).is_empty());
    assert_eq!(send_entry(&mut machine, 2, started(None))[0]["replay"], false);
    // No event of the old session was sent, because the client had seen all of them.
    let mut machine = watching(params(), 10, 10);
    assert!(send_entry(&mut machine, 1, renamed).is_empty());
    assert_eq!(send_entry(&mut machine, 2, started(None))[0]["replay"], false);
}

fn answer(machine: &mut SuprMachine, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
    machine.handle(Instant::now(), Input::Answer(ticket, answer));
}

/// A machine that downloads the first of two files, and the ticket of that request.
fn fetching() -> (SuprMachine, Ticket) {
    let mut machine = watching(params(), 0, 0);
    let file = r#"{"type":"image","url":"http://a.example/b"}"#;
    send_frame(
        &mut machine,
        &format!(r#"{{"type":"media.send","payload":{{"attachments":[{file},{file}]}}}}"#),
    );
    let (frames, mut requests) = drain(&mut machine);
    assert!(frames.is_empty(), "{frames:?}");
    let (ticket, command) = requests.pop().unwrap();
    assert!(matches!(command, RegistryRequest::Fetch { .. }), "{command:?}");
    (machine, ticket)
}

/// The ticket of the stop that the machine has submitted, if any.
fn submitted_stop(machine: &mut SuprMachine) -> Option<Ticket> {
    let (frames, mut requests) = drain(machine);
    assert!(frames.is_empty() && requests.len() <= 1, "{frames:?} {requests:?}");
    let (ticket, command) = requests.pop()?;
    matches!(command, RegistryRequest::Session(_, SessionCommand::Stop { .. })).then_some(ticket)
}

fn wrong_run() -> SessionRefusal {
    let id = |id: &str| RunId::parse(id).unwrap();
    SessionRefusal::WrongRun { asked: id("run_1"), active: id("run_2") }
}

/// Answers the download with a failure, and returns the codes of the errors that the client gets.
fn codes_after_failed_download(machine: &mut SuprMachine, fetch: Ticket) -> Vec<Value> {
    answer(machine, fetch, Ok(RegistryReply::Files(vec![Err(FileError::Unreadable)])));
    drain(machine).0.iter().map(|frame| frame["payload"]["code"].clone()).collect()
}

#[test]
fn a_stop_does_not_wait_for_files_but_its_refusal_comes_in_order() {
    let (mut machine, fetch) = fetching();
    send_frame(&mut machine, r#"{"type":"run.stop"}"#);
    let stop = submitted_stop(&mut machine).unwrap();
    answer(&mut machine, stop, Err(wrong_run()));
    assert!(drain(&mut machine).0.is_empty());
    assert_eq!(codes_after_failed_download(&mut machine, fetch), ["media_write_failed", "run_mismatch"]);
    // The refusal is also in order if it arrives after the end of the request before it.
    let (mut machine, fetch) = fetching();
    send_frame(&mut machine, r#"{"type":"run.stop"}"#);
    send_frame(&mut machine, "{");
    let stop = submitted_stop(&mut machine).unwrap();
    assert_eq!(codes_after_failed_download(&mut machine, fetch), ["media_write_failed"]);
    answer(&mut machine, stop, Err(wrong_run()));
    let (frames, _) = drain(&mut machine);
    assert_eq!(frames[0]["payload"]["code"], "run_mismatch");
    assert_eq!(frames[1]["payload"]["code"], "invalid_message");
}

#[test]
fn an_accepted_stop_leaves_nothing_behind() {
    let (mut machine, fetch) = fetching();
    send_frame(&mut machine, r#"{"type":"run.stop"}"#);
    let stop = submitted_stop(&mut machine).unwrap();
    answer(&mut machine, stop, Ok(RegistryReply::Done));
    assert_eq!(codes_after_failed_download(&mut machine, fetch), ["media_write_failed"]);
    assert!(machine.waiting.is_empty() && machine.waiting_bytes == 0 && machine.pending.is_none());
}

#[test]
fn a_stop_without_an_active_run_waits_for_the_pending_message() {
    let (mut machine, fetch) = fetching();
    send_frame(&mut machine, r#"{"type":"run.stop"}"#);
    let stop = submitted_stop(&mut machine).unwrap();
    answer(&mut machine, stop, Err(SessionRefusal::NoActiveRun));
    assert_eq!(submitted_stop(&mut machine), None);
    // The message fails, so there is no run to stop.
    answer(&mut machine, fetch, Ok(RegistryReply::Files(vec![Err(FileError::Unreadable)])));
    let (frames, requests) = drain(&mut machine);
    assert_eq!(frames[0]["payload"]["code"], "media_write_failed");
    answer(&mut machine, requests[0].0, Err(SessionRefusal::NoActiveRun));
    assert_eq!(drain(&mut machine).0[0]["payload"]["code"], "no_active_run");
}

#[test]
fn no_download_starts_after_the_limit() {
    let (mut machine, fetch) = fetching();
    let file = NamedFile { name: String::new(), bytes: vec![1] };
    answer(&mut machine, fetch, Ok(RegistryReply::Files(vec![Ok(file)])));
    let (_, requests) = drain(&mut machine);
    let media = Media { id: MediaId::parse("a").unwrap(), name: String::new(), mime: String::new(), size: 1 };
    let later = Instant::now() + FILES_WAIT;
    machine.handle(later, Input::Answer(requests[0].0, Ok(RegistryReply::Stored(vec![media]))));
    let (frames, requests) = drain(&mut machine);
    assert_eq!(frames[0]["payload"]["code"], "media_write_failed");
    // No download; the file that was stored is discarded.
    assert_eq!(requests.iter().map(|(_, request)| request).collect::<Vec<_>>(), [&discard_of("a")]);
}

fn discard_of(id: &str) -> RegistryRequest {
    RegistryRequest::DiscardMedia(vec![MediaId::parse(id).unwrap()])
}

#[test]
fn the_files_of_a_refused_frame_are_discarded() {
    let media = Media { id: MediaId::parse("a").unwrap(), name: String::new(), mime: String::new(), size: 1 };
    let frame = |second: &str| {
        format!(
            r#"{{"type":"media.send","payload":{{"attachments":[{{"data":"aGk="}},{{"data":"{second}"}}]}}}}"#
        )
    };
    // The second file is not base64.
    let mut machine = watching(params(), 0, 0);
    send_frame(&mut machine, &frame("*"));
    let store = drain(&mut machine).1.remove(0).0;
    answer(&mut machine, store, Ok(RegistryReply::Stored(vec![media.clone()])));
    let (frames, requests) = drain(&mut machine);
    assert_eq!(
        (&frames[0]["payload"]["code"], &requests[0].1),
        (&json!("media_write_failed"), &discard_of("a"))
    );
    // The session refuses the message.
    let refuse = |refusal: SessionRefusal| {
        let mut machine = watching(params(), 0, 0);
        send_frame(&mut machine, r#"{"type":"media.send","payload":{"data":"aGk="}}"#);
        let store = drain(&mut machine).1.remove(0).0;
        answer(&mut machine, store, Ok(RegistryReply::Stored(vec![media.clone()])));
        let send = drain(&mut machine).1.remove(0).0;
        answer(&mut machine, send, Err(refusal));
        let (frames, requests) = drain(&mut machine);
        (machine, frames, requests)
    };
    let unknown = SessionRefusal::OutcomeUnknown(SessionId::parse("s").unwrap());
    assert!(refuse(unknown).2.is_empty(), "the message may be recorded");
    let (mut machine, frames, requests) = refuse(SessionRefusal::QueueFull { limit: 16 });
    assert_eq!((&frames[0]["event_type"], &requests[0].1), (&json!("error.raised"), &discard_of("a")));
    // Nobody waits for the answer.
    assert!(!machine.has_work_in_progress());
    answer(&mut machine, requests[0].0, Ok(RegistryReply::Done));
    assert!(drain(&mut machine).0.is_empty());
}
