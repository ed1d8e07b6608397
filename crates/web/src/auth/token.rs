//! The token that clients must know: its form, and its comparison in constant time.

use std::fmt;

/// A token of so many random letters and digits has 128 bits.
pub const STRONG_TOKEN_CHARS: usize = 22;

/// The longest token. Every handshake carries it in a header, whose size is limited.
pub const MAX_TOKEN_CHARS: usize = 512;

/// The secret that clients must know. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It has no characters.
    #[error("the token is empty; remove it, and one is made")]
    Empty,
    /// It is longer than [`MAX_TOKEN_CHARS`].
    #[error("the token is longer than {MAX_TOKEN_CHARS} characters; choose a shorter one")]
    TooLong,
    /// It has a character that browsers refuse to send.
    #[error(
        "the token has the character {0:?}, which browsers refuse to send; use letters, digits and - . _ ~ only"
    )]
    Character(char),
}

impl Token {
    /// Takes `text` as a token if browsers can send it as a subprotocol: it consists of what RFC 7230 calls token
    /// characters.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if let Some(invalid) = text.chars().find(|character| !is_token_character(*character)) {
            return Err(TokenError::Character(invalid));
        }
        if text.len() > MAX_TOKEN_CHARS {
            return Err(TokenError::TooLong);
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether `given` is this token. The time of the comparison does not show how much of it is right.
    pub fn is(&self, given: &[u8]) -> bool {
        constant_time_eq::constant_time_eq(given, self.0.as_bytes())
    }

    /// Whether it is long enough for a server that other machines can reach.
    pub fn is_strong(&self) -> bool {
        self.0.len() >= STRONG_TOKEN_CHARS
    }

    /// The token itself. Only for code that passes it to those who may know it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn is_token_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_only_characters_that_browsers_send() {
        assert!(Token::parse("aZ09-._~!#$%&'*+^`|").is_ok());
        for wrong in ["a b", "a,b", "a/b", "a=", "a:b", "é", "a\n", "a\"b"] {
            assert!(matches!(Token::parse(wrong), Err(TokenError::Character(_))), "{wrong:?}");
        }
        assert_eq!(Token::parse(""), Err(TokenError::Empty));
        assert!(Token::parse(&"x".repeat(MAX_TOKEN_CHARS)).is_ok());
        assert_eq!(Token::parse(&"x".repeat(MAX_TOKEN_CHARS + 1)), Err(TokenError::TooLong));
    }

    #[test]
    fn a_token_is_compared_whole_and_never_shown() {
        let token = Token::parse("abc").unwrap();
        assert!(token.is(b"abc") && !token.is(b"abd") && !token.is(b"ab") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn a_token_is_strong_if_it_is_long() {
        assert!(Token::parse(&"x".repeat(STRONG_TOKEN_CHARS)).unwrap().is_strong());
        assert!(!Token::parse(&"x".repeat(STRONG_TOKEN_CHARS - 1)).unwrap().is_strong());
    }
}
