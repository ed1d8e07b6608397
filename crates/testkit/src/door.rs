//! What a door tells the runner about its frames.

use serde_json::Value;

/// One dialect, as far as a transcript cannot know it.
pub trait Door: Sync {
    /// `held` and `next` as one frame, if they are neighbouring pieces of one stream that could as
    /// well have come uncut. A frame that is a piece can be joined with itself; that is how the
    /// runner asks whether waiting for more makes sense.
    fn join(&self, held: &Value, next: &Value) -> Option<Value>;
}

/// The exec dialect: output of one process on one stream may be cut anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Exec;

impl Door for Exec {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const CHUNK: &str = "/params/chunk";
        let bytes = |frame: &Value| {
            let text = frame.pointer(CHUNK)?.as_str()?;
            base64_simd::STANDARD.decode_to_vec(text).ok()
        };
        if held.get("method")? != "command/exec/outputDelta" {
            return None;
        }
        let mut joined = bytes(held)?;
        joined.extend(bytes(next)?);
        let joined = Value::from(base64_simd::STANDARD.encode_to_string(joined));

        // Equal but for their chunks: the same process, the same stream, and no stray member.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(CHUNK)? = joined.clone();
        *other.pointer_mut(CHUNK)? = joined;
        (frame == other).then_some(frame)
    }
}

/// The synaps dialect: what is said and thought, and a tool's input, may be cut anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Synaps;

impl Door for Synaps {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        const DELTA: &str = "/event/delta";
        let text = |frame: &Value| Some(frame.pointer(DELTA)?.as_str()?.to_owned());
        let joined = Value::from(text(held)? + &text(next)?);

        // Equal but for their texts: of the same kind, and of the same tool.
        let (mut frame, mut other) = (held.clone(), next.clone());
        *frame.pointer_mut(DELTA)? = joined.clone();
        *other.pointer_mut(DELTA)? = joined;
        (frame == other).then_some(frame)
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
        // The first piece ends within a group of three bytes, so its base64 has padding.
        let joined = Exec.join(&delta("p", "stdout", "aGVsbA=="), &delta("p", "stdout", "bwo="));
        assert_eq!(joined, Some(delta("p", "stdout", "aGVsbG8K")));
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
    fn pieces_of_what_is_said_are_joined_and_nothing_else() {
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
}
