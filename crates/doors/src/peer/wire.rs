//! The frames of the peer door.

use parlor_vocab::{RunId, SessionId};
use serde::{Deserialize, Serialize};

use super::forms::{BorrowedCommand, WireCommand, WireRefusal, WireReply, WireStream, id};

/// A line of the process that connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientFrame {
    /// Must come before every other frame.
    Hello(ClientHello),
    /// Sends a command to a session.
    Command {
        /// Chosen by the sender; the reply or refusal repeats it.
        id: u64,
        /// The session that executes the command.
        #[serde(with = "id")]
        session: SessionId,
        /// What the session's actor is asked to do.
        command: WireCommand,
    },
    /// Deletes a session.
    Delete {
        /// Chosen by the sender; the reply or refusal repeats it.
        id: u64,
        /// The session that the owner deletes with its log.
        #[serde(with = "id")]
        session: SessionId,
    },
    /// Begins to watch a session.
    Watch {
        /// Chosen by the sender; the reply or refusal repeats it.
        id: u64,
        /// The session whose heads and deltas the owner reports.
        #[serde(with = "id")]
        session: SessionId,
    },
    /// Ends a watch, which the owner then reports no more.
    Unwatch {
        /// Chosen by the sender; the reply or refusal repeats it.
        id: u64,
        /// The session whose watch ends.
        #[serde(with = "id")]
        session: SessionId,
    },
}

/// A [`ClientFrame::Command`] that borrows its command, which may be many megabytes long. It is only written.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BorrowedFrame<'a> {
    /// Sends a command to a session.
    Command {
        /// Chosen by the sender; the reply or refusal repeats it.
        id: u64,
        /// The session that executes the command.
        #[serde(with = "id")]
        session: &'a SessionId,
        /// What the session's actor is asked to do.
        command: BorrowedCommand<'a>,
    },
}

/// A line of the process that was connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerFrame {
    /// The answer to `hello`.
    Hello(ServerHello),
    /// A request was carried out.
    Reply {
        /// The id of the request.
        id: u64,
        /// The session's reply to a command; missing for other requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<WireReply>,
    },
    /// A request was refused.
    Refusal {
        /// The id of the request.
        id: u64,
        /// Why the owner refused it, in the words of the session registry.
        refusal: WireRefusal,
    },
    /// The log holds the events of a watched session up to this one.
    Head {
        /// The watched session.
        #[serde(with = "id")]
        session: SessionId,
        /// The number of the event.
        seq: u64,
    },
    /// A piece of a text that is being written in a watched session.
    Delta {
        /// The watched session in which the text is written.
        #[serde(with = "id")]
        session: SessionId,
        /// The run that the text belongs to.
        #[serde(with = "id")]
        run: RunId,
        /// The text that this piece continues.
        stream: WireStream,
        /// The new piece.
        text: String,
    },
    /// The owner no longer has a watched session open.
    Closed {
        /// The session whose watch has ended.
        #[serde(with = "id")]
        session: SessionId,
    },
    /// The owner closes the connection.
    Error {
        /// What was wrong, for people.
        message: String,
    },
}

/// The first frame of the process that connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// The versions of this protocol that the process speaks.
    pub versions: Vec<u32>,
    /// The version of the program.
    pub program: String,
    /// The id of the sending process, for messages to people.
    pub pid: u32,
}

/// The answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// The version that both sides use from now on.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The id of the sending process, for messages to people.
    pub pid: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `frame` is read, and written as it was.
    fn check<T: Serialize + for<'de> Deserialize<'de>>(frame: &str) {
        let read: T = serde_json::from_str(frame).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), frame);
    }

    #[test]
    fn every_frame_is_written_as_it_was_read() {
        for frame in [
            r#"{"hello":{"versions":[2,1],"program":"0.1.0","pid":4711}}"#,
            r#"{"command":{"id":1,"session":"s","command":{"send":{"input":{"text":"hi","choice":{},"key":"k"},"when_busy":"refuse"}}}}"#,
            r#"{"delete":{"id":2,"session":"s"}}"#,
            r#"{"watch":{"id":3,"session":"s"}}"#,
            r#"{"unwatch":{"id":18446744073709551615,"session":""}}"#,
        ] {
            check::<ClientFrame>(frame);
            if let ClientFrame::Command { id, session, command } = serde_json::from_str(frame).unwrap() {
                let command = BorrowedCommand(&command.0);
                let borrowed = BorrowedFrame::Command { id, session: &session, command };
                assert_eq!(serde_json::to_string(&borrowed).unwrap(), frame);
            }
        }
        for frame in [
            r#"{"hello":{"version":1,"program":"0.1.0","pid":4242}}"#,
            r#"{"reply":{"id":1,"reply":{"started":"run_1"}}}"#,
            r#"{"reply":{"id":1}}"#,
            r#"{"refusal":{"id":1,"refusal":{"busy":{"active":"run_1"}}}}"#,
            r#"{"head":{"session":"s","seq":2}}"#,
            r#"{"delta":{"session":"s","run":"run_1","stream":{"message":"msg_1"},"text":"hi"}}"#,
            r#"{"closed":{"session":"s"}}"#,
            r#"{"error":{"message":"m"}}"#,
        ] {
            check::<ServerFrame>(frame);
        }
    }
}
