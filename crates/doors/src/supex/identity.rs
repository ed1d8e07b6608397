//! The client of a connection: the token that it must know, and what its `hello` says.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{CallKey, Caller, RepeatKey};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::MAX_NONCE_BYTES;
use super::code::FrameError;
use super::decode::{is_truthy, string};
use super::wire::{FEATURE_ATTACH, FEATURE_OUTPUT};
use crate::json::{Members, strings_in};

/// The secret that clients must send in `hello`. Its `Debug` form hides it.
#[derive(Clone)]
pub struct HelloToken(Secret);

/// Compares a text with the valid token.
type TokenCheck = dyn Fn(&[u8]) -> bool + Send + Sync;

#[derive(Clone)]
enum Secret {
    /// The token of this door.
    Door(String),
    /// The token of the whole server, which may change at any time; the function compares with the current one.
    Server(Arc<TokenCheck>),
}

impl HelloToken {
    /// A token of this door; `None` if the text is empty.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(Secret::Door(text.to_owned())))
    }

    /// The token of the whole server, for clients that may belong to another user of the machine. `is_valid` must
    /// compare in constant time.
    pub fn for_server(is_valid: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Secret::Server(Arc::new(is_valid)))
    }

    /// Whether the door has a token of its own. Then its clients get parlor's own tools as well.
    pub(super) fn is_door_secret(&self) -> bool {
        matches!(self.0, Secret::Door(_))
    }

    /// Compares `given` with the token in constant time.
    fn check(&self, given: Option<&RawValue>) -> Result<(), FrameError> {
        let given = given.and_then(string).unwrap_or_default();
        match &self.0 {
            Secret::Door(token) => constant_time_eq::constant_time_eq(given.as_bytes(), token.as_bytes())
                .then_some(())
                .ok_or(FrameError::WrongToken),
            Secret::Server(is_valid) => {
                is_valid(given.as_bytes()).then_some(()).ok_or(FrameError::WrongServerToken)
            }
        }
    }
}

impl fmt::Debug for HelloToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HelloToken(…)")
    }
}

/// What the machines use of a `hello`.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The client's name, process id and agent, as raw JSON. `None` if the client has no name: a name is all that tells
    /// some clients apart from others.
    raw_identity: Option<String>,
    /// The nonce of an earlier connection, if the client asks for `attach` and sent a valid one.
    pub(super) nonce: Option<String>,
    pub(super) caller: Caller,
    pub(super) wants_attach: bool,
    pub(super) wants_output: bool,
}

/// The members of a `hello` that are read.
const HELLO: [&str; 8] = ["name", "version", "agent", "pid", "token", "workspace", "features", "nonce"];

/// The members that a `hello` to the bridge must have. Any value except null and false is accepted.
const REQUIRED: [&str; 4] = ["name", "version", "agent", "pid"];

impl Identity {
    /// Reads a `hello` to the bridge. The token is checked first, so a client without it learns nothing else.
    pub(super) fn from_bridge_hello(
        params: Option<&RawValue>,
        token: Option<&HelloToken>,
    ) -> Result<Self, FrameError> {
        let members = members(params);
        check_token(token, members.as_ref().ok())?;
        let members = members.map_err(|kind| match kind {
            ParamsError::Absent => FrameError::HelloIncomplete,
            ParamsError::WrongType => {
                FrameError::InvalidParams("Invalid params: params must be an object".to_owned())
            }
        })?;
        if !REQUIRED.iter().all(|name| members.get(name).is_some_and(is_truthy)) {
            return Err(FrameError::HelloIncomplete);
        }
        Ok(Self::from_members(&members))
    }

    /// Reads a `hello` to the console, where no member is required. Also returns the client's process id.
    pub(super) fn from_console_hello(
        params: Option<&RawValue>,
        token: Option<&HelloToken>,
    ) -> Result<(Self, Option<u64>), FrameError> {
        let members = members(params);
        check_token(token, members.as_ref().ok())?;
        let members = match members {
            Ok(members) => members,
            Err(ParamsError::Absent) if params.is_none_or(|raw| !is_truthy(raw)) => Members::default(),
            Err(ParamsError::Absent | ParamsError::WrongType) => {
                return Err(FrameError::InvalidParams("Invalid params: params must be an object".to_owned()));
            }
        };
        let pid = members.get("pid").and_then(|pid| serde_json::from_str(pid.get()).ok());
        Ok((Self::from_members(&members), pid))
    }

    fn from_members(members: &Members<'_>) -> Self {
        let raw = |name: &str| members.get(name).map_or("", |value| value.get());
        let text = |name: &str| members.get(name).and_then(string);
        let [wants_attach, wants_output] = strings_in(raw("features"), [FEATURE_ATTACH, FEATURE_OUTPUT]);
        let has_name = members.get("name").is_some_and(|name| is_truthy(name) && name.get() != "\"\"");
        Self {
            raw_identity: has_name.then(|| format!("{}\n{}\n{}", raw("name"), raw("pid"), raw("agent"))),
            nonce: text("nonce").filter(|nonce| wants_attach && is_valid_nonce(nonce)),
            caller: Caller {
                agent: text("agent").unwrap_or_default(),
                workspace: text("workspace").filter(|folder| !folder.is_empty()),
            },
            wants_attach,
            wants_output,
        }
    }

    /// What a request has in common with its repetition on another connection. `None` for a client without a name.
    pub(super) fn repeat_key(&self, id: &str, name: &str, arguments: &str) -> Option<RepeatKey> {
        let mut digest = Sha256::new();
        for part in [self.raw_identity.as_deref()?, id, name, arguments] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        Some(RepeatKey { call: CallKey(digest.finalize().into()), nonce: self.nonce.clone() })
    }
}

/// Whether a text can be a nonce that a server gave.
fn is_valid_nonce(text: &str) -> bool {
    (1..=MAX_NONCE_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn check_token(token: Option<&HelloToken>, members: Option<&Members<'_>>) -> Result<(), FrameError> {
    let given = members.and_then(|members| members.get("token"));
    token.map_or(Ok(()), |token| token.check(given))
}

/// Why params are not an object.
enum ParamsError {
    /// They are missing, null, false or a string; SketchUp's runtime treats all of these as missing.
    Absent,
    /// They are of another type.
    WrongType,
}

fn members(params: Option<&RawValue>) -> Result<Members<'_>, ParamsError> {
    let Some(raw) = params else { return Err(ParamsError::Absent) };
    match raw.get().bytes().next() {
        Some(b'{') => Members::read(raw.get(), &HELLO).map_err(|_| ParamsError::WrongType),
        Some(b'n' | b'f' | b'"') => Err(ParamsError::Absent),
        Some(_) | None => Err(ParamsError::WrongType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn hello(params: &str, token: Option<&str>) -> Result<Identity, FrameError> {
        Identity::from_bridge_hello(Some(&raw(params)), token.and_then(HelloToken::new).as_ref())
    }

    #[test]
    fn four_members_are_required_and_may_have_any_type() {
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
            assert!(matches!(hello(params, None).unwrap_err(), FrameError::InvalidParams(_)), "{params}");
        }
    }

    #[test]
    fn the_token_is_checked_first_and_must_be_a_string() {
        let whole = |token: &str| format!(r#"{{"name":"n","version":"v","agent":"a","pid":1{token}}}"#);
        for token in ["", r#","token":"wrong""#, r#","token":5"#, r#","token":null"#, r#","token":"secre""#] {
            assert_eq!(hello(&whole(token), Some("secret")).unwrap_err(), FrameError::WrongToken, "{token}");
        }
        assert_eq!(hello("{}", Some("secret")).unwrap_err(), FrameError::WrongToken);
        assert_eq!(hello("[]", Some("secret")).unwrap_err(), FrameError::WrongToken);
        assert!(hello(&whole(r#","token":"secret""#), Some("secret")).is_ok());
        assert!(hello(&whole(r#","token":"any""#), Some("")).is_ok(), "an empty token is none");
    }

    #[test]
    fn only_a_repetition_has_the_same_key() {
        let client = |pid: u64| {
            hello(&format!(r#"{{"name":"n","version":"v","agent":"a","pid":{pid}}}"#), None).unwrap()
        };
        let key = client(1).repeat_key("7", "eval_ruby", "{}");
        assert_eq!(key, client(1).repeat_key("7", "eval_ruby", "{}"));
        assert_ne!(key, client(2).repeat_key("7", "eval_ruby", "{}"));
        assert_ne!(key, client(1).repeat_key("8", "eval_ruby", "{}"));
        assert_ne!(key, client(1).repeat_key("7", "eval_rub", "y{}"));
    }

    #[test]
    fn a_console_without_a_name_has_no_key() {
        let key = |params: &str| {
            let (identity, _) = Identity::from_console_hello(Some(&raw(params)), None).unwrap();
            identity.repeat_key("7", "eval", "{}")
        };
        for params in ["{}", r#"{"pid":1}"#, r#"{"name":null,"pid":1}"#, r#"{"name":"","pid":1}"#] {
            assert_eq!(key(params), None, "{params}");
        }
        assert!(key(r#"{"name":"repl-client","pid":1}"#).is_some());
    }

    #[test]
    fn only_a_client_that_asks_for_attach_may_send_a_nonce_and_only_a_short_plain_one() {
        let nonce = |members: &str| {
            let params = format!(r#"{{"name":"n","version":"v","agent":"a","pid":1,{members}}}"#);
            hello(&params, None).unwrap().nonce
        };
        assert_eq!(nonce(r#""features":["attach"],"nonce":"0aZ""#).as_deref(), Some("0aZ"));
        assert_eq!(nonce(r#""nonce":"0aZ""#), None);
        let long = format!(r#""{}""#, "a".repeat(MAX_NONCE_BYTES + 1));
        for wrong in ["5", "null", r#""""#, r#""a b""#, r#""a\n""#, r#""ä""#, &long] {
            assert_eq!(nonce(&format!(r#""features":["attach"],"nonce":{wrong}"#)), None, "{wrong}");
        }
        let longest = "a".repeat(MAX_NONCE_BYTES);
        assert_eq!(nonce(&format!(r#""features":["attach"],"nonce":"{longest}""#)), Some(longest));
    }

    #[test]
    fn a_console_accepts_only_a_number_as_process_id() {
        let pid = |params: &str| Identity::from_console_hello(Some(&raw(params)), None).unwrap().1;
        assert_eq!(pid(r#"{"pid":4242}"#), Some(4242));
        for params in
            [r#"{"pid":"../x"}"#, r#"{"pid":-1}"#, r#"{"pid":1.5}"#, r#"{"pid":null}"#, "{}", "null"]
        {
            assert_eq!(pid(params), None, "{params}");
        }
        assert!(Identity::from_console_hello(None, None).is_ok());
        assert!(Identity::from_console_hello(Some(&raw("[]")), None).is_err());
    }

    #[test]
    fn the_server_token_is_the_current_one() {
        let current = Arc::new(std::sync::Mutex::new("old"));
        let shared = Arc::clone(&current);
        let token = HelloToken::for_server(move |given| given == shared.lock().unwrap().as_bytes());
        let hello = |given: &str| {
            let params = raw(&format!(r#"{{"name":"n","version":"v","agent":"a","pid":1,"token":{given}}}"#));
            Identity::from_bridge_hello(Some(&params), Some(&token)).map(|_| ())
        };
        assert!(hello(r#""old""#).is_ok() && !token.is_door_secret());
        *current.lock().unwrap() = "new";
        assert!(hello(r#""new""#).is_ok());
        for wrong in [r#""old""#, "null", "5", r#""""#] {
            assert_eq!(hello(wrong), Err(FrameError::WrongServerToken), "{wrong}");
        }
        assert_eq!(
            Identity::from_console_hello(None, Some(&token)).unwrap_err(),
            FrameError::WrongServerToken
        );
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(format!("{:?}", HelloToken::new("secret")), "Some(HelloToken(…))");
    }
}
