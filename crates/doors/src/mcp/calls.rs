//! `tools/call`: finds the tool and passes its arguments on.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::code::{self, Error};
use super::dispatch::decode;
use super::machine::{McpMachine, RequestKey};
use super::{MAX_ARGUMENTS_BYTES, SESSION_TOOLS};

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl McpMachine {
    /// Begins to carry out a call. Fails if the request makes no sense; a model can mend anything else, so that is answered
    /// with a result.
    pub(super) fn call(&mut self, key: RequestKey, params: Option<&RawValue>) -> Result<(), Error> {
        let CallParams { name, arguments } = decode(params)?;
        let arguments = arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(code::invalid_params("`arguments` must be an object"));
        }
        if arguments.len() > MAX_ARGUMENTS_BYTES {
            let reason = format!("`arguments` has more than {MAX_ARGUMENTS_BYTES} bytes");
            return Err(code::invalid_params(&reason));
        }
        if SESSION_TOOLS.contains(&name.as_str()) {
            self.call_session_tool(key, &name, arguments);
            return Ok(());
        }
        if !self.params.tools.has_own(&name) {
            return Err(code::unknown_tool(&name));
        }
        self.call_tool(key, name, arguments.to_owned());
        Ok(())
    }
}
