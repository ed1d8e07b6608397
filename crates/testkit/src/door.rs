//! What the runner must know about the frames of each door.

use serde_json::Value;

/// The rules of a door's frames that transcripts do not contain.
pub trait Door: Sync {
    /// Joins `held` and `next` if they are adjacent pieces of one stream that may be cut anywhere. A piece of a stream can
    /// be joined with itself; with that the runner checks whether more pieces may follow.
    fn join(&self, held: &Value, next: &Value) -> Option<Value>;

    /// Checks the rules that hold for every frame of the door.
    fn check(&self, frame: &Value) -> Result<(), String> {
        let _ = frame;
        Ok(())
    }
}

/// The exec door: the output of a process on one stream may be cut anywhere. Joined numbered output has the number of its
/// last piece, so a transcript that expects several pieces writes `_` for the numbers.
#[derive(Clone, Copy, Debug)]
pub struct Exec;

impl Door for Exec {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const CHUNK: &str = "/params/chunk";
        const SEQ: &str = "/params/seq";
        let bytes = |frame: &Value| {
            let text = frame.pointer(CHUNK)?.as_str()?;
            base64_simd::STANDARD.decode_to_vec(text).ok()
        };
        if !["command/exec/outputDelta", "process/output"].contains(&held.get("method")?.as_str()?) {
            return None;
        }
        let mut joined = bytes(held)?;
        joined.extend(bytes(next)?);
        let joined = Value::from(base64_simd::STANDARD.encode_to_string(joined));

        // The frames must be equal except for their chunks.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(CHUNK)? = joined.clone();
        *other.pointer_mut(CHUNK)? = joined;
        if let (Some(seq), Some(next)) = (frame.pointer_mut(SEQ), other.pointer(SEQ)) {
            *seq = next.clone();
        }
        (frame == other).then_some(frame)
    }
}

/// The synaps door: answers, reasoning and the inputs of tools may be cut anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Synaps;

impl Door for Synaps {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const DELTA: &str = "/event/delta";
        let text = |frame: &Value| Some(frame.pointer(DELTA)?.as_str()?.to_owned());
        let joined = Value::from(text(held)? + &text(next)?);

        // The frames must be equal except for their texts.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(DELTA)? = joined.clone();
        *other.pointer_mut(DELTA)? = joined;
        (frame == other).then_some(frame)
    }
}

/// The peer door: the texts of deltas may be cut anywhere, and every frame has one name.
#[derive(Clone, Copy, Debug)]
pub struct PeerDialect;

impl Door for PeerDialect {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const TEXT: &str = "/delta/text";
        let text = |frame: &Value| Some(frame.pointer(TEXT)?.as_str()?.to_owned());
        let joined = Value::from(text(held)? + &text(next)?);

        // The frames must be equal except for their texts.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(TEXT)? = joined.clone();
        *other.pointer_mut(TEXT)? = joined;
        (frame == other).then_some(frame)
    }

    fn check(&self, frame: &Value) -> Result<(), String> {
        match frame.as_object() {
            Some(members) if members.len() == 1 => Ok(()),
            Some(_) | None => Err(format!("a frame is an object with one member: {frame}")),
        }
    }
}

/// The supr door: deltas of texts may be cut anywhere, and every activity has a valid envelope.
#[derive(Clone, Copy, Debug)]
pub struct Supr;

impl Door for Supr {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const TEXT: &str = "/payload/text";
        const TIME: &str = "/timestamp";
        let is_text =
            |kind: &str| matches!(kind, "message.delta" | "reasoning.delta" | "tool.output" | "tool.input");
        if !is_text(held.get("type")?.as_str()?) {
            return None;
        }
        let text = |frame: &Value| Some(frame.pointer(TEXT)?.as_str()?.to_owned());
        let joined = Value::from(text(held)? + &text(next)?);

        // The frames must be equal except for their texts and timestamps.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(TEXT)? = joined.clone();
        *other.pointer_mut(TEXT)? = joined;
        *other.pointer_mut(TIME)? = frame.pointer(TIME)?.clone();
        (frame == other).then_some(frame)
    }

    fn check(&self, frame: &Value) -> Result<(), String> {
        if frame.get("type").is_some() == frame.get("event_type").is_some() {
            return Err(format!("a frame is either typed or an event: {frame}"));
        }
        if frame.get("type").is_some() {
            let is_valid = frame["timestamp"].is_i64() && frame.get("id").is_none_or(Value::is_string);
            return is_valid.then_some(()).ok_or_else(|| format!("a typed frame needs a timestamp: {frame}"));
        }
        let key = format!("{}_{}", frame["run_id"].as_str().unwrap_or_default(), frame["sequence"]);
        let rules = [
            ("v is 1.0", frame["v"] == "1.0"),
            (
                "agent_id is mirrored",
                frame["agent_id"].is_string() && frame["agent_id"] == frame["data"]["agent_id"],
            ),
            ("idempotency_key is RUN_SEQUENCE", frame["idempotency_key"] == key.as_str()),
            ("parent_run_id is present", frame.get("parent_run_id").is_some()),
            ("replay is a boolean", frame["replay"].is_boolean()),
            ("sequence counts from 1", frame["sequence"].as_u64().is_some_and(|sequence| sequence > 0)),
            (
                "ids have a prefix and 32 hexadecimal digits",
                is_prefixed_id(&frame["event_id"], "evt_") && is_prefixed_id(&frame["run_id"], "run_"),
            ),
            ("timestamp is RFC 3339 in milliseconds", is_timestamp(&frame["timestamp"])),
        ];
        match rules.iter().find(|(_, holds)| !holds) {
            Some((rule, _)) => Err(format!("the rule \"{rule}\" is broken by {frame}")),
            None => Ok(()),
        }
    }
}

/// Whether `id` is `prefix` and 32 hexadecimal digits.
fn is_prefixed_id(id: &Value, prefix: &str) -> bool {
    let digits = id.as_str().and_then(|id| id.strip_prefix(prefix)).unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `text` has the form `2026-03-04T12:00:00.123Z`.
fn is_timestamp(text: &Value) -> bool {
    let text = text.as_str().unwrap_or_default();
    let fits = |(form, given): (u8, u8)| if form == b'0' { given.is_ascii_digit() } else { form == given };
    let form = "0000-00-00T00:00:00.000Z";
    text.len() == form.len() && form.bytes().zip(text.bytes()).all(fits)
}

/// The loaf door: answers and reasoning may be cut anywhere, and a status event comes before each piece.
#[derive(Clone, Copy, Debug)]
pub struct Loaf;

impl Door for Loaf {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const CHUNK: &str = "/params/payload/chunk";
        const SEGMENT: &str = "/params/payload/chunk/segments/0";
        let is_equal =
            |pointer: &str| held.pointer(pointer).is_some() && held.pointer(pointer) == next.pointer(pointer);
        let kind = |frame: &Value| Some(frame.pointer("/params/type")?.as_str()?.to_owned());
        if kind(held)? != "session.stream.chunk" || !is_equal("/params/payload/session_id") {
            return None;
        }
        // The status event between two pieces is dropped.
        let label = next.pointer("/params/payload/status_label").and_then(Value::as_str).unwrap_or_default();
        if label == "drafting response..." || label.starts_with("thinking: ") {
            return Some(held.clone());
        }
        if kind(next)? != "session.stream.chunk"
            || !is_equal("/params/payload/turn_id")
            || !is_equal(&format!("{SEGMENT}/kind"))
        {
            return None;
        }
        let text = |frame: &Value| Some(frame.pointer(SEGMENT)?.get("text")?.as_str()?.to_owned());
        let joined = Value::from(text(held)? + &text(next)?);
        let mut frame = held.clone();
        if held.pointer(SEGMENT)?.get("kind")? == "answer" {
            frame.pointer_mut(CHUNK)?["answerText"] = joined.clone();
        } else {
            // Each piece of reasoning repeats the whole text so far.
            frame.pointer_mut(CHUNK)?["thoughts"] = next.pointer(CHUNK)?["thoughts"].clone();
        }
        frame.pointer_mut(SEGMENT)?["text"] = joined;
        Some(frame)
    }
}

/// The ACP door: texts of the agent may be cut anywhere, and the output of a running tool may be shown in any number of
/// updates, of which the last one counts.
#[derive(Clone, Copy, Debug)]
pub struct Acp;

impl Door for Acp {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const TEXT: &str = "/params/update/content/text";
        const DATA: &str = "/params/update/_meta/terminal_output/data";
        const CONTENT: &str = "/params/update/content";
        let joined = |pointer: &str| {
            let text = |frame: &Value| Some(frame.pointer(pointer)?.as_str()?.to_owned());
            let joined = Value::from(text(held)? + &text(next)?);
            // The frames must be equal except for their texts.
            let (mut frame, mut other) = (held.clone(), next.clone());
            *frame.pointer_mut(pointer)? = joined.clone();
            *other.pointer_mut(pointer)? = joined;
            (frame == other).then_some(frame)
        };
        let update = held.pointer("/params/update")?;
        match update["sessionUpdate"].as_str()? {
            "agent_message_chunk" | "agent_thought_chunk" => joined(TEXT),
            "tool_call_update" if update.get("status").is_some() => None,
            "tool_call_update" => joined(DATA).or_else(|| {
                let mut shown = held.clone();
                *shown.pointer_mut(CONTENT)? = next.pointer(CONTENT)?.clone();
                (shown == *next).then_some(shown)
            }),
            _ => None,
        }
    }

    fn check(&self, frame: &Value) -> Result<(), String> {
        if frame["jsonrpc"] != "2.0" {
            return Err(format!("every frame has the version of JSON-RPC: {frame}"));
        }
        let is_answer = frame.get("result").is_some() || frame.get("error").is_some();
        let is_valid = if is_answer { frame.get("id").is_some() } else { frame["method"].is_string() };
        is_valid.then_some(()).ok_or_else(|| format!("a frame is an answer or has a method: {frame}"))
    }
}

/// The MCP door: a running call may report its progress any number of times, of which the last report counts.
#[derive(Clone, Copy, Debug)]
pub struct Mcp;

impl Door for Mcp {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        let token = |frame: &Value| {
            let is_progress = frame["method"] == "notifications/progress";
            is_progress.then(|| frame["params"]["progressToken"].clone())
        };
        (token(held)? == token(next)?).then(|| next.clone())
    }

    fn check(&self, frame: &Value) -> Result<(), String> {
        let is_answer = frame.get("result").is_some() || frame.get("error").is_some();
        let is_valid = frame["jsonrpc"] == "2.0" && is_answer != frame["method"].is_string();
        is_valid.then_some(()).ok_or_else(|| format!("a frame is an answer or has a method: {frame}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delta(process: &str, stream: &str, chunk: &str) -> Value {
        json!({
            "method": "command/exec/outputDelta",
            "params": {"processId": process, "stream": stream, "chunk": chunk},
        })
    }

    #[test]
    fn pieces_of_one_stream_are_joined_as_bytes() {
        // The length of the first piece is not a multiple of three, so its base64 has padding.
        let joined = Exec.join(&delta("p", "stdout", "aGVsbA=="), &delta("p", "stdout", "bwo="));
        assert_eq!(joined, Some(delta("p", "stdout", "aGVsbG8K")));
    }

    #[test]
    fn pieces_of_numbered_output_get_the_last_number() {
        let piece = |seq: u64, chunk: &str| {
            json!({
                "method": "process/output",
                "params": {"processId": "p", "seq": seq, "stream": "pty", "chunk": chunk},
            })
        };
        assert_eq!(Exec.join(&piece(1, "aGVsbA=="), &piece(2, "bwo=")), Some(piece(2, "aGVsbG8K")));
    }

    #[test]
    fn other_frames_are_not_joined() {
        let held = delta("p", "stdout", "aGVsbG8K");
        let exited = json!({"method": "command/exec/exited", "params": {"processId": "p", "exitCode": 0}});
        let mut stray = held.clone();
        stray["jsonrpc"] = json!("2.0");
        for next in [
            delta("q", "stdout", "aGVsbG8K"),
            delta("p", "stderr", "aGVsbG8K"),
            delta("p", "stdout", "no base64"),
            exited.clone(),
            json!({"id": 1, "result": {}}),
            stray,
        ] {
            assert_eq!(Exec.join(&held, &next), None, "{next}");
        }
        assert_eq!(Exec.join(&exited, &exited), None);
    }

    #[test]
    fn only_pieces_of_the_same_text_are_joined() {
        let piece = |kind: &str, delta: &str| json!({"type": "message_update", "event": {"type": kind, "delta": delta}});
        let joined = Synaps.join(&piece("text_delta", "a "), &piece("text_delta", "b"));
        assert_eq!(joined, Some(piece("text_delta", "a b")));
        let held = piece("text_delta", "a");
        let mut of_a_tool = held.clone();
        of_a_tool["event"]["tool_id"] = json!("t");
        for next in [piece("thinking_delta", "b"), of_a_tool, json!({"type": "agent_end", "usage": {}})] {
            assert_eq!(Synaps.join(&held, &next), None, "{next}");
            assert_eq!(Synaps.join(&next, &held), None, "{next}");
        }
    }

    #[test]
    fn pieces_of_one_stream_of_the_peer_door_are_joined() {
        let piece = |run: &str, text: &str| json!({"delta": {"session": "s", "run": run, "stream": {"message": "m"}, "text": text}});
        assert_eq!(PeerDialect.join(&piece("r", "a "), &piece("r", "b")), Some(piece("r", "a b")));
        let head = json!({"head": {"session": "s", "seq": 1}});
        for next in [piece("q", "b"), head.clone()] {
            assert_eq!(PeerDialect.join(&piece("r", "a"), &next), None, "{next}");
        }
        assert_eq!(PeerDialect.check(&head), Ok(()));
        for wrong in [json!({}), json!([]), json!({"head": {}, "delta": {}})] {
            assert!(PeerDialect.check(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pieces_of_a_text_are_joined_despite_their_timestamps() {
        let piece = |kind: &str, time: i64, text: &str| json!({"type": kind, "session_id": "s", "timestamp": time, "payload": {"run_id": "r", "text": text}});
        let joined = Supr.join(&piece("message.delta", 1, "a "), &piece("message.delta", 2, "b"));
        assert_eq!(joined, Some(piece("message.delta", 1, "a b")));
        let held = piece("message.delta", 1, "a");
        let mut of_another = held.clone();
        of_another["payload"]["run_id"] = json!("q");
        for next in [piece("reasoning.delta", 1, "b"), of_another, json!({"type": "pong", "timestamp": 1})] {
            assert_eq!(Supr.join(&held, &next), None, "{next}");
        }
    }

    #[test]
    fn the_envelope_of_an_activity_is_checked() {
        let (run, id) = (format!("run_{}", "0a".repeat(16)), format!("evt_{}", "1f".repeat(16)));
        let event = json!({
            "v": "1.0", "event_id": id, "event_type": "run.started", "timestamp": "2026-03-04T12:00:00.123Z",
            "sequence": 1, "session_id": "s", "run_id": run, "parent_run_id": null, "agent_id": "a",
            "idempotency_key": format!("{run}_1"), "replay": false, "data": {"agent_id": "a"},
        });
        assert_eq!(Supr.check(&event), Ok(()));
        for (member, wrong) in [
            ("v", json!("1")),
            ("event_id", json!("evt_1")),
            ("timestamp", json!("2026-03-04T12:00:00Z")),
            ("sequence", json!(0)),
            ("run_id", json!("run_2")),
            ("agent_id", json!("b")),
            ("idempotency_key", json!("x")),
            ("replay", json!(null)),
            ("data", json!({})),
            ("type", json!("event")),
        ] {
            let mut invalid = event.clone();
            invalid[member] = wrong;
            assert!(Supr.check(&invalid).is_err(), "{member}");
        }
        let mut invalid = event.clone();
        invalid.as_object_mut().unwrap().remove("parent_run_id");
        assert!(Supr.check(&invalid).is_err());
        assert_eq!(Supr.check(&json!({"type": "pong", "timestamp": 1})), Ok(()));
        assert!(Supr.check(&json!({"type": "pong"})).is_err());
    }

    #[test]
    fn pieces_of_an_answer_are_joined_across_status_events() {
        let event = |kind: &str, payload: Value| json!({"jsonrpc": "2.0", "method": "event", "params": {"type": kind, "payload": payload}});
        let piece = |kind: &str, text: &str, thought: Option<&str>| {
            let answer = if kind == "answer" { text } else { "" };
            let thoughts: Vec<&str> = thought.into_iter().collect();
            let chunk = json!({"thoughts": thoughts, "answerText": answer, "segments": [{"kind": kind, "text": text}]});
            event("session.stream.chunk", json!({"session_id": "s", "turn_id": "t", "chunk": chunk}))
        };
        let status = |label: &str| event("session.status", json!({"session_id": "s", "status_label": label}));
        let held = piece("answer", "a ", None);
        assert_eq!(Loaf.join(&held, &status("drafting response...")), Some(held.clone()));
        assert_eq!(Loaf.join(&held, &piece("answer", "b", None)), Some(piece("answer", "a b", None)));
        let (one, two) = (piece("thought", "x", Some("x")), piece("thought", "y", Some("xy")));
        assert_eq!(Loaf.join(&one, &two), Some(piece("thought", "xy", Some("xy"))));
        for next in [status("ready"), one.clone(), json!({"jsonrpc": "2.0", "id": 1, "result": {}})] {
            assert_eq!(Loaf.join(&held, &next), None, "{next}");
        }
        assert_eq!(Loaf.join(&status("ready"), &status("ready")), None);
    }

    #[test]
    fn texts_of_one_acp_message_are_joined_and_outputs_replace_each_other() {
        let update = |update: Value| json!({"method": "session/update", "params": {"update": update}});
        let chunk = |id: &str, text: &str| {
            let content = json!({"type": "text", "text": text});
            update(json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": content}))
        };
        assert_eq!(Acp.join(&chunk("m", "a "), &chunk("m", "b")), Some(chunk("m", "a b")));
        assert_eq!(Acp.join(&chunk("m", "a "), &chunk("n", "b")), None);
        let output = |text: &str| {
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [text]}))
        };
        assert_eq!(Acp.join(&output("a"), &output("a b")), Some(output("a b")));
        let mut done = output("a b");
        done["params"]["update"]["status"] = json!("completed");
        assert_eq!(Acp.join(&output("a"), &done), None);
    }
}
