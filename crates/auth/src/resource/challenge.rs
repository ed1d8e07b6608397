//! What a server says with 401 or 403: the header `WWW-Authenticate` (RFC 9110, RFC 6750, RFC 9728).

/// The challenge of the scheme `Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where the metadata of the server is.
    pub resource_metadata: Option<String>,
    /// The scopes that a token needs, separated by spaces.
    pub scope: Option<String>,
    /// The code of the error, such as `insufficient_scope`.
    pub error: Option<String>,
}

impl Challenge {
    /// Reads the header's values. Other schemes are ignored, and so is what cannot be read.
    pub fn parse<'t>(headers: impl IntoIterator<Item = &'t str>) -> Option<Self> {
        let mut found = None;
        for header in headers {
            let mut rest = header;
            while let Some((word, after)) = next_word(rest) {
                rest = after;
                if word.eq_ignore_ascii_case("bearer") {
                    found.get_or_insert_with(Self::default);
                }
                let Some(challenge) = &mut found else { continue };
                // A word before `=` is a parameter, any other word is a scheme.
                let Some(value) = rest.trim_start().strip_prefix('=') else { continue };
                let Some((value, after)) = next_value(value.trim_start()) else { break };
                rest = after;
                let member = match word.to_ascii_lowercase().as_str() {
                    "resource_metadata" => &mut challenge.resource_metadata,
                    "scope" => &mut challenge.scope,
                    "error" => &mut challenge.error,
                    _ => continue,
                };
                member.get_or_insert(value);
            }
        }
        found
    }

    /// The scopes, one by one.
    pub fn scopes(&self) -> Vec<String> {
        self.scope.iter().flat_map(|scope| scope.split_ascii_whitespace()).map(str::to_owned).collect()
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// The next word and what follows it.
fn next_word(text: &str) -> Option<(&str, &str)> {
    let start = text.trim_start_matches(|c: char| !is_word(c));
    let end = start.find(|c: char| !is_word(c)).unwrap_or(start.len());
    Some(start.split_at(end)).filter(|(word, _)| !word.is_empty())
}

/// The value of a parameter, with quotes or without, and what follows it.
fn next_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = next_word(text)?;
        return Some((word.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_the_bearer_scheme_are_read() {
        let challenge = Challenge::parse([
            r#"Basic realm="x, scope=\"no\"""#,
            r#"bearer error="insufficient_scope", scope = "a b", Resource_Metadata="https://h/\"x\"", other=1"#,
        ]);
        let challenge = challenge.unwrap();
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://h/\"x\""));
        assert_eq!(challenge.scopes(), ["a", "b"]);
        assert_eq!(challenge.error.as_deref(), Some("insufficient_scope"));
        assert_eq!(Challenge::parse(["Bearer"]), Some(Challenge::default()));
        assert_eq!(Challenge::parse(["Basic realm=x"]), None);
        for bad in ["Bearer scope=\"open", "Bearer scope=", "Bearer =,=\"", "Bearer \u{e9}=\u{e9}"] {
            assert_eq!(Challenge::parse([bad]), Some(Challenge::default()), "{bad}");
        }
    }
}
