//! Truncates texts that quote a client, which may have sent megabytes.

/// `text` with at most `max_bytes` bytes; a longer text gets an ellipsis at its end.
pub(crate) fn truncate_bytes(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('\u{2026}');
    }
    text
}
