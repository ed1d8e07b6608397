//! The images of a prompt, given by path or as a data URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_vocab::{FileError, NamedFile};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::params::members;
use super::text::{string, trim};
use super::{MAX_IMAGE_BYTES, MAX_IMAGES, MAX_KEPT_IMAGE_BYTES, code};
use crate::json::for_each_item;

/// An image as the client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageInput {
    path: String,
    data_url: Option<String>,
    mime: Option<String>,
}

/// An accepted image, as events show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) path: String,
    pub(super) mime: String,
    /// Shared between messages, because it may be large.
    pub(super) data_url: Arc<str>,
    pub(super) bytes: u64,
}

/// The images of a request. Items that are not images are skipped. Reading stops one image above the limit, which is
/// enough to refuse the prompt.
pub(super) fn parse_images(images: Option<&RawValue>) -> Vec<ImageInput> {
    let mut inputs = Vec::new();
    if let Some(images) = images {
        for_each_item(images.get(), |item| {
            inputs.extend(parse_image(item));
            inputs.len() <= MAX_IMAGES
        });
    }
    inputs
}

fn parse_image(item: &RawValue) -> Option<ImageInput> {
    let fields = members(item, &["path", "data_url", "dataUrl", "mime_type", "mimeType"])?;
    let text = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| fields.get(name).and_then(string));
        found.map(|text| trim(&text).to_owned()).filter(|text| !text.is_empty())
    };
    let (path, data_url) = (text(["path", "path"]), text(["data_url", "dataUrl"]));
    if path.is_none() && data_url.is_none() {
        return None;
    }
    Some(ImageInput { path: path.unwrap_or_default(), data_url, mime: text(["mime_type", "mimeType"]) })
}

impl ImageInput {
    /// The bytes of the image while its prompt waits.
    pub(super) fn size(&self) -> usize {
        self.path.len() + self.data_url.as_ref().map_or(0, String::len)
    }

    /// The image in the result of `session.queue.list`.
    pub(super) fn to_json(&self) -> Value {
        let mut members = Map::from_iter([("path".to_owned(), Value::from(self.path.as_str()))]);
        for (name, value) in [("mime_type", &self.mime), ("data_url", &self.data_url)] {
            if let Some(value) = value {
                members.insert(name.to_owned(), Value::from(value.as_str()));
            }
        }
        Value::Object(members)
    }

    /// The file to read; `None` for a data URL.
    pub(super) fn file_path(&self, folder: &Path, user_home: Option<&Path>) -> Option<PathBuf> {
        self.data_url.is_none().then(|| resolve(&self.path, folder, user_home))
    }

    /// Decodes the image of a data URL.
    pub(super) fn decode_data_url(&self, now_ms: i64) -> Result<(Image, Vec<u8>), String> {
        let url = self.data_url.as_deref().unwrap_or_default();
        let (url_mime, payload) = split_data_url(url).ok_or_else(|| code::IMAGE_URL.to_owned())?;
        let mime = self.mime.as_deref().unwrap_or(url_mime).to_lowercase();
        if extension_of(&mime).is_none() {
            return Err(code::image_mime(&mime));
        }
        let bytes = decode_base64(payload);
        if bytes.is_empty() {
            return Err(code::IMAGE_EMPTY.to_owned());
        }
        if bytes.len() as u64 > MAX_IMAGE_BYTES {
            return Err(code::image_too_large(bytes.len() as u64));
        }
        let label = if self.path.is_empty() { format!("rpc-image-{now_ms}.png") } else { self.path.clone() };
        Ok((Image::new(label, mime, &bytes), bytes))
    }

    /// Checks the image in a file that was read.
    pub(super) fn check_file(&self, file: Result<NamedFile, FileError>) -> Result<(Image, Vec<u8>), String> {
        let path = unquoted(&self.path);
        let file_path = resolve(path, Path::new(""), None);
        let extension = file_path.extension().and_then(|extension| extension.to_str());
        let mime = extension.and_then(|extension| mime_of(&extension.to_lowercase()));
        match (file, mime) {
            (Err(error @ (FileError::Missing | FileError::NotRegular | FileError::Inaccessible)), _) => {
                Err(code::image_file_error(error, path))
            }
            (_, None) => Err(code::image_type(extension.map(str::to_lowercase).as_deref())),
            (
                Err(error @ (FileError::TooLarge { .. } | FileError::Unreadable | FileError::Empty)),
                Some(_),
            ) => Err(code::image_file_error(error, path)),
            (Ok(file), Some(_)) if file.bytes.is_empty() => Err(code::IMAGE_EMPTY.to_owned()),
            (Ok(file), Some(mime)) => {
                Ok((Image::new(path.to_owned(), mime.to_owned(), &file.bytes), file.bytes))
            }
        }
    }
}

impl Image {
    pub(super) fn new(path: String, mime: String, bytes: &[u8]) -> Self {
        let data_url = format!("data:{mime};base64,{}", base64_simd::STANDARD.encode_to_string(bytes));
        Self { path, mime, data_url: data_url.into(), bytes: bytes.len() as u64 }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"path": self.path, "mimeType": self.mime, "dataUrl": &*self.data_url, "byteSize": self.bytes})
    }

    /// The file name under which the image is stored.
    pub(super) fn file_name(&self) -> String {
        let name = Path::new(&self.path).file_name().and_then(|name| name.to_str()).unwrap_or("image");
        name.to_owned()
    }
}

/// Drops the oldest images of a conversation above [`MAX_KEPT_IMAGE_BYTES`]. `messages` are the images of each message,
/// the oldest message first; the messages themselves stay.
pub(super) fn drop_oldest_images<'a>(messages: impl DoubleEndedIterator<Item = &'a mut Vec<Image>>) {
    let mut bytes = 0;
    for images in messages.rev() {
        bytes += images.iter().map(|image| image.data_url.len()).sum::<usize>();
        if bytes > MAX_KEPT_IMAGE_BYTES {
            images.clear();
        }
    }
}

/// The text of a prompt with a label such as `[Image 1]` for each image that the text does not mention.
pub(super) fn with_labels(text: &str, images: usize) -> String {
    let lower_case = text.to_lowercase();
    let mut labelled = text.to_owned();
    for number in 1..=images {
        if !lower_case.contains(&format!("[image {number}]")) {
            if !labelled.is_empty() {
                labelled.push(' ');
            }
            labelled.push_str(&format!("[Image {number}]"));
        }
    }
    labelled
}

fn mime_of(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        _ => return None,
    })
}

fn extension_of(mime: &str) -> Option<&'static str> {
    ["png", "jpeg", "webp", "gif"].into_iter().find(|extension| mime_of(extension) == Some(mime))
}

fn unquoted(path: &str) -> &str {
    let inner = |quote: char| path.strip_prefix(quote).and_then(|path| path.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).map_or(path, trim)
}

fn resolve(path: &str, folder: &Path, user_home: Option<&Path>) -> PathBuf {
    let path = unquoted(path);
    let decoded = path.strip_prefix("file://").map(percent_decoded);
    let path = decoded.as_deref().unwrap_or(path);
    match (path.strip_prefix("~/"), user_home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(path),
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (byte, hex(ahead.next()), hex(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The MIME type and the payload of a data URL.
fn split_data_url(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let (head, payload) = rest.split_once(',')?;
    let (mime, encoding) = head.split_once(';')?;
    let is_base64_data = scheme.eq_ignore_ascii_case("data") && encoding.eq_ignore_ascii_case("base64");
    (is_base64_data && !mime.is_empty()).then_some((mime, payload))
}

/// Decodes base64 of either alphabet up to its padding. Characters that belong to neither are skipped.
fn decode_base64(payload: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in payload.bytes().take_while(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(path: &str, data_url: Option<&str>, mime: Option<&str>) -> ImageInput {
        ImageInput {
            path: path.to_owned(),
            data_url: data_url.map(str::to_owned),
            mime: mime.map(str::to_owned),
        }
    }

    fn file(bytes: &[u8]) -> Result<NamedFile, FileError> {
        Ok(NamedFile { name: "f".to_owned(), bytes: bytes.to_vec() })
    }

    #[test]
    fn items_that_are_not_images_are_skipped() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(parse_images(None).is_empty() && parse_images(Some(&raw("\"str\""))).is_empty());
        let found = parse_images(Some(&raw(
            r#"[1,{},{"path":" "},{"path":" a.png "},{"dataUrl":"data:x","mimeType":"image/gif"}]"#,
        )));
        assert_eq!(found, [image("a.png", None, None), image("", Some("data:x"), Some("image/gif"))]);
        assert_eq!(found[1].to_json(), json!({"path":"","data_url":"data:x","mime_type":"image/gif"}));
    }

    #[test]
    fn paths_may_be_quoted_relative_or_urls() {
        let at =
            |path: &str| image(path, None, None).file_path(Path::new("/w"), Some(Path::new("/u"))).unwrap();
        assert_eq!(at("a.png"), PathBuf::from("/w/a.png"));
        assert_eq!(at("'/x/a b.png'"), PathBuf::from("/x/a b.png"));
        assert_eq!(at("~/a.png"), PathBuf::from("/u/a.png"));
        assert_eq!(at("file:///x/a%20b%zz.png"), PathBuf::from("/x/a b%zz.png"));
        assert_eq!(image("p", Some("data:"), None).file_path(Path::new("/"), None), None);
    }

    #[test]
    fn a_file_is_refused_for_the_first_matching_reason() {
        let refused = |path: &str, file| image(path, None, None).check_file(file).unwrap_err();
        assert_eq!(refused("/x.txt", Err(FileError::Missing)), "file not found: /x.txt");
        assert_eq!(refused("/x.png", Err(FileError::NotRegular)), "not a file: /x.png");
        assert!(refused("/x.TXT", file(b"x")).starts_with("unsupported image type: .txt. "));
        assert!(refused("/x", Err(FileError::TooLarge { bytes: 1 << 30 })).contains("(no extension)"));
        assert_eq!(
            refused("/x.png", Err(FileError::TooLarge { bytes: 9 << 20 })),
            "image too large (9.00 mb). max is 8.00 mb"
        );
        assert_eq!(refused("/x.png", file(b"")), "image payload is empty");
        let (taken, bytes) = image("/x.JPG", None, None).check_file(file(b"hi")).unwrap();
        assert_eq!((taken.mime.as_str(), bytes.as_slice()), ("image/jpeg", b"hi".as_slice()));
        assert_eq!(&*taken.data_url, "data:image/jpeg;base64,aGk=");
    }

    #[test]
    fn a_data_url_is_refused_for_the_first_matching_reason() {
        let refused = |url: &str, mime| image("", Some(url), mime).decode_data_url(5).unwrap_err();
        for url in ["nonsense", "data:image/png,aGk=", "data:;base64,aGk=", "http://x"] {
            assert_eq!(refused(url, None), code::IMAGE_URL, "{url}");
        }
        assert_eq!(
            refused("data:image/png;base64,aGk=", Some("image/BMP")),
            "unsupported image mime type: image/bmp"
        );
        assert_eq!(refused("data:image/png;base64,====", None), "image payload is empty");
        let large = format!("data:image/png;base64,{}", "A".repeat((8 << 20) / 3 * 4 + 8));
        assert!(refused(&large, None).starts_with("image too large (8.00 mb)"));
        let (taken, bytes) =
            image("", Some("DATA:image/PNG;BASE64,aG k=\n"), None).decode_data_url(5).unwrap();
        assert_eq!((taken.path.as_str(), taken.mime.as_str()), ("rpc-image-5.png", "image/png"));
        assert_eq!(bytes, b"hi");
    }

    #[test]
    fn the_oldest_images_are_dropped_above_the_limit() {
        let image = |bytes: usize| Image {
            path: String::new(),
            mime: String::new(),
            data_url: "x".repeat(bytes).into(),
            bytes: 0,
        };
        let mut messages = [vec![image(1)], vec![image(MAX_KEPT_IMAGE_BYTES - 1)], vec![], vec![image(1)]];
        drop_oldest_images(messages.iter_mut());
        assert_eq!(messages.each_ref().map(Vec::len), [0, 1, 0, 1]);
    }

    #[test]
    fn missing_labels_are_added() {
        assert_eq!(with_labels("see [image 1]", 2), "see [image 1] [Image 2]");
        assert_eq!(with_labels("", 2), "[Image 1] [Image 2]");
        assert_eq!(with_labels("plain", 0), "plain");
    }
}
