//! Who is at the other end: the token that lets a client in, and what its `hello` says.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{CallKey, Caller};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::code::FrameError;
use super::envelope::{is_truthy, string};
use super::protocol::{FEATURE_ATTACH, FEATURE_OUTPUT};
use crate::json::{Members, texts_in};

/// The secret that clients must know. Never shown.
#[derive(Clone)]
pub struct Token(Secret);

/// Compares a text with a token.
type IsRight = dyn Fn(&[u8]) -> bool + Send + Sync;

#[derive(Clone)]
enum Secret {
    /// That of this door alone.
    OfDoor(String),
    /// That of the whole server, which may change at any time: tells whether a text is the one that holds.
    OfServer(Arc<IsRight>),
}

impl Token {
    /// The token of that text. An empty one is none.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(Secret::OfDoor(text.to_owned())))
    }

    /// The token of the whole server, for clients of which it is not known whose they are. `is_right` compares in
    /// constant time.
    pub fn of_server(is_right: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Secret::OfServer(Arc::new(is_right)))
    }

    /// Whether it is a secret between this door and its clients, who then get parlor's own tools as well.
    pub(super) fn is_of_door(&self) -> bool {
        matches!(self.0, Secret::OfDoor(_))
    }

    /// Whether `given` is the same, in a time that does not tell how much of it is.
    fn check(&self, given: Option<&RawValue>) -> Result<(), FrameError> {
        let given = given.and_then(string).unwrap_or_default();
        match &self.0 {
            Secret::OfDoor(token) => constant_time_eq::constant_time_eq(given.as_bytes(), token.as_bytes())
                .then_some(())
                .ok_or(FrameError::BadToken),
            Secret::OfServer(is_right) => {
                is_right(given.as_bytes()).then_some(()).ok_or(FrameError::NoServerToken)
            }
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a `hello` says, as far as it matters.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Name, process and agent, as the client wrote them.
    written: String,
    pub(super) caller: Caller,
    pub(super) wants_attach: bool,
    pub(super) wants_output: bool,
}

/// The fields of a `hello` that are looked at.
const HELLO: [&str; 7] = ["name", "version", "agent", "pid", "token", "workspace", "features"];

/// The fields that a `hello` to the bridge must have. Anything but null and false will do.
const REQUIRED: [&str; 4] = ["name", "version", "agent", "pid"];

impl Identity {
    /// Reads a `hello` to the bridge. The token comes first: who does not know it learns nothing else.
    pub(super) fn of_bridge(params: Option<&RawValue>, token: Option<&Token>) -> Result<Self, FrameError> {
        let members = members(params);
        check_token(token, members.as_ref().ok())?;
        let members = members.map_err(|kind| match kind {
            NoMembers::Nothing => FrameError::HelloIncomplete,
            NoMembers::Other => FrameError::BadParams("Invalid params: params must be an object".to_owned()),
        })?;
        if !REQUIRED.iter().all(|name| members.get(name).is_some_and(is_truthy)) {
            return Err(FrameError::HelloIncomplete);
        }
        Ok(Self::of(&members))
    }

    /// Reads a `hello` to the console, in which nothing is required, and the client's process.
    pub(super) fn of_console(
        params: Option<&RawValue>,
        token: Option<&Token>,
    ) -> Result<(Self, Option<u64>), FrameError> {
        let members = members(params);
        check_token(token, members.as_ref().ok())?;
        let members = match members {
            Ok(members) => members,
            Err(NoMembers::Nothing) if params.is_none_or(|raw| !is_truthy(raw)) => Members::default(),
            Err(NoMembers::Nothing | NoMembers::Other) => {
                return Err(FrameError::BadParams("Invalid params: params must be an object".to_owned()));
            }
        };
        let pid = members.get("pid").and_then(|pid| serde_json::from_str(pid.get()).ok());
        Ok((Self::of(&members), pid))
    }

    fn of(members: &Members<'_>) -> Self {
        let raw = |name: &str| members.get(name).map_or("", |value| value.get());
        let text = |name: &str| members.get(name).and_then(string);
        let [wants_attach, wants_output] = texts_in(raw("features"), [FEATURE_ATTACH, FEATURE_OUTPUT]);
        Self {
            written: format!("{}\n{}\n{}", raw("name"), raw("pid"), raw("agent")),
            caller: Caller {
                agent: text("agent").unwrap_or_default(),
                workspace: text("workspace").filter(|folder| !folder.is_empty()),
            },
            wants_attach,
            wants_output,
        }
    }

    /// What a request has in common with its repeat on another connection, and with nothing else.
    pub(super) fn key(&self, id: &str, what: &str, arguments: &str) -> CallKey {
        let mut digest = Sha256::new();
        for part in [self.written.as_str(), id, what, arguments] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        CallKey(digest.finalize().into())
    }
}

fn check_token(token: Option<&Token>, members: Option<&Members<'_>>) -> Result<(), FrameError> {
    let given = members.and_then(|members| members.get("token"));
    token.map_or(Ok(()), |token| token.check(given))
}

/// Why params have no members.
enum NoMembers {
    /// They are not there, null, or a text, which upstream takes for nothing.
    Nothing,
    /// They are something else.
    Other,
}

fn members(params: Option<&RawValue>) -> Result<Members<'_>, NoMembers> {
    let Some(raw) = params else { return Err(NoMembers::Nothing) };
    match raw.get().bytes().next() {
        Some(b'{') => Members::read(raw.get(), &HELLO).map_err(|_| NoMembers::Other),
        Some(b'n' | b'f' | b'"') => Err(NoMembers::Nothing),
        Some(_) | None => Err(NoMembers::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn hello(params: &str, token: Option<&str>) -> Result<Identity, FrameError> {
        Identity::of_bridge(Some(&raw(params)), token.and_then(Token::new).as_ref())
    }

    #[test]
    fn four_fields_must_be_there_whatever_they_are() {
        assert!(hello(r#"{"name":"","version":[],"agent":0,"pid":"x"}"#, None).is_ok());
        for params in [
            r#"{"name":"n","version":"v","agent":"a"}"#,
            r#"{"name":"n","version":"v","agent":"a","pid":null}"#,
            r#"{"name":"n","version":"v","agent":false,"pid":1}"#,
            "null",
            "\"x\"",
        ] {
            assert_eq!(hello(params, None).unwrap_err(), FrameError::HelloIncomplete, "{params}");
        }
        for params in ["[]", "5", "true"] {
            assert!(matches!(hello(params, None).unwrap_err(), FrameError::BadParams(_)), "{params}");
        }
    }

    #[test]
    fn the_token_comes_first_and_is_a_text() {
        let whole = |token: &str| format!(r#"{{"name":"n","version":"v","agent":"a","pid":1{token}}}"#);
        for token in ["", r#","token":"wrong""#, r#","token":5"#, r#","token":null"#, r#","token":"secre""#] {
            assert_eq!(hello(&whole(token), Some("secret")).unwrap_err(), FrameError::BadToken, "{token}");
        }
        assert_eq!(hello("{}", Some("secret")).unwrap_err(), FrameError::BadToken);
        assert_eq!(hello("[]", Some("secret")).unwrap_err(), FrameError::BadToken);
        assert!(hello(&whole(r#","token":"secret""#), Some("secret")).is_ok());
        assert!(hello(&whole(r#","token":"any""#), Some("")).is_ok(), "an empty token is none");
    }

    #[test]
    fn a_key_is_the_same_for_a_repeat_alone() {
        let client = |pid: u64| {
            hello(&format!(r#"{{"name":"n","version":"v","agent":"a","pid":{pid}}}"#), None).unwrap()
        };
        let key = client(1).key("7", "eval_ruby", "{}");
        assert_eq!(key, client(1).key("7", "eval_ruby", "{}"));
        assert_ne!(key, client(2).key("7", "eval_ruby", "{}"));
        assert_ne!(key, client(1).key("8", "eval_ruby", "{}"));
        assert_ne!(key, client(1).key("7", "eval_rub", "y{}"));
    }

    #[test]
    fn a_console_takes_a_process_only_if_it_is_a_number() {
        let pid = |params: &str| Identity::of_console(Some(&raw(params)), None).unwrap().1;
        assert_eq!(pid(r#"{"pid":4242}"#), Some(4242));
        for params in
            [r#"{"pid":"../x"}"#, r#"{"pid":-1}"#, r#"{"pid":1.5}"#, r#"{"pid":null}"#, "{}", "null"]
        {
            assert_eq!(pid(params), None, "{params}");
        }
        assert!(Identity::of_console(None, None).is_ok());
        assert!(Identity::of_console(Some(&raw("[]")), None).is_err());
    }

    #[test]
    fn the_token_of_the_server_is_the_one_that_holds_at_the_time() {
        let holds = Arc::new(std::sync::Mutex::new("old"));
        let now = Arc::clone(&holds);
        let token = Token::of_server(move |given| given == now.lock().unwrap().as_bytes());
        let hello = |given: &str| {
            let params = raw(&format!(r#"{{"name":"n","version":"v","agent":"a","pid":1,"token":{given}}}"#));
            Identity::of_bridge(Some(&params), Some(&token)).map(|_| ())
        };
        assert!(hello(r#""old""#).is_ok() && !token.is_of_door());
        *holds.lock().unwrap() = "new";
        assert!(hello(r#""new""#).is_ok());
        for wrong in [r#""old""#, "null", "5", r#""""#] {
            assert_eq!(hello(wrong), Err(FrameError::NoServerToken), "{wrong}");
        }
        assert_eq!(Identity::of_console(None, Some(&token)).unwrap_err(), FrameError::NoServerToken);
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(format!("{:?}", Token::new("secret")), "Some(Token(…))");
    }
}
