//! Connects to each door and passes in the frame that is measured.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parlor_doors::exec::ExecMachine;
use parlor_doors::fuzz_harness::DeterministicSource;
use parlor_doors::loaf::{LoafMachine, ServerParams};
use parlor_doors::supex::{AttachInfo, BridgeMachine, ReplMachine};
use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_doors::synaps::{ChildParams, SynapsMachine};
use parlor_doors::{Input, Machine, Output};
use parlor_vocab::{
    AgentChoice, Credentials, NewSession, Preferences, RubyReply, RubyRequest, Seq, SessionId, Timestamp,
};

/// Passes in a frame and drops the machine's outputs one after another.
fn send(machine: &mut impl Machine, frame: &[u8]) {
    machine.handle(Instant::now(), Input::Frame(frame));
    while machine.poll().is_some() {}
}

pub(crate) fn supr(frame: &[u8]) {
    let source = DeterministicSource::new(Timestamp(1));
    let mut machine = SuprMachine::new(ConnectionParams {
        frames: std::sync::Arc::default(),
        session: SessionId::parse("s").expect("a short text"),
        after: None,
        watch: Vec::new(),
        streams: false,
        may_send: true,
        traceparent: None,
        agents: Arc::new([("a".to_owned(), "A".to_owned())]),
        folder: "/".into(),
        clock: Arc::clone(&source) as _,
        ids: source,
    });
    while machine.poll().is_some() {}
    send(&mut machine, frame);
}

pub(crate) fn loaf(frame: &[u8]) {
    let source = DeterministicSource::new(Timestamp(1));
    let (model, provider, thinking, route) = Default::default();
    let mut machine = LoafMachine::new(ServerParams {
        folder: "/".into(),
        user_home: None,
        chats_path: "/chats".into(),
        preferences: Preferences { model, provider, reasoning: thinking, route, setup_done: false },
        models: Vec::new(),
        credentials: Credentials::default(),
        skill_folders: Vec::new(),
        skill_count: 0,
        agent_commands: HashMap::new(),
        tools: Vec::new(),
        clock: Arc::clone(&source) as _,
        ids: source,
    });
    while machine.poll().is_some() {}
    send(&mut machine, frame);
}

pub(crate) fn synaps(frame: &[u8]) {
    let (choice, folder) = (AgentChoice::default(), "/".into());
    let (title, system, forked_from) = (None, None, None);
    let mut machine = SynapsMachine::new(ChildParams {
        session: SessionId::parse("s").expect("a short text"),
        head: Seq(1),
        is_new: true,
        active: None,
        key_prefix: "child".to_owned(),
        new_session: NewSession { title, door: "synaps".to_owned(), folder, choice, system, forked_from },
        default_model: "m".to_owned(),
        models: Vec::new(),
        routes: Vec::new(),
        tools: Vec::new(),
    });
    while machine.poll().is_some() {}
    send(&mut machine, frame);
}

const HELLO: &[u8] =
    br#"{"jsonrpc":"2.0","id":0,"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1}}"#;

/// Passes in the frame as the first line of a connection, and on another connection after `hello`.
fn before_and_after_hello<M>(frame: &[u8], machine: impl Fn() -> M)
where
    M: Machine<Request = RubyRequest, Reply = Arc<RubyReply>, Event = ()>,
{
    send(&mut machine(), frame);
    let mut identified = machine();
    identified.handle(Instant::now(), Input::Frame(HELLO));
    while let Some(output) = identified.poll() {
        if let Output::Request(ticket, _) = output {
            let opened = RubyReply::ConsoleOpened { session: "s".to_owned() };
            identified.handle(Instant::now(), Input::Answer(ticket, Ok(Arc::new(opened))));
        }
    }
    send(&mut identified, frame);
}

pub(crate) fn bridge(frame: &[u8]) {
    before_and_after_hello(frame, || {
        BridgeMachine::new(None, AttachInfo::new("one", "nonce1"), Instant::now())
    });
}

pub(crate) fn repl(frame: &[u8]) {
    before_and_after_hello(frame, || ReplMachine::new(None));
}

pub(crate) fn exec(frame: &[u8]) {
    let mut machine = ExecMachine::default();
    send(&mut machine, frame);
    let mut machine = ExecMachine::default();
    send(&mut machine, br#"{"id":0,"method":"initialize","params":{"clientName":"c"}}"#);
    send(&mut machine, frame);
}
