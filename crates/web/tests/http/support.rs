//! A server to talk to, and a client that says exactly what it is told to.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{Seek, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::{SinkExt, StreamExt};
use parlor_transport::{AllowLocal, CloseReason, FrameMemory, Socket};
use parlor_web::{
    AgentInfo, Archive, ArchiveError, Asset, DayUsage, EventPage, FILE_PIECE_BYTES, HandshakeQuery,
    LastEvent, MessageText, Metrics, ModelInfo, ModelMenu, ModelUsage, OneTimeLink, SessionInfo,
    SessionTranscript, SocketHandler, StopSignal, StoredFile, Token, TokenConfig, TokenStore, UsageReport,
    Web, WebLimits, WebSettings, serve_web, system_chance,
};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;

pub(crate) type Client = WebSocketStream<TcpStream>;

/// The token of servers that have one in their settings.
pub(crate) const TOKEN: &str = "good-token-of-22-characters";
/// How long the text of the session `large` is: more than sockets hold.
pub(crate) const LARGE_TEXT_BYTES: usize = 8 << 20;
/// The key of the handshakes that are written by hand.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A page as it is built.
const BUILT: &[Asset] = &[
    Asset {
        path: "/assets/index-0a1b2c.js",
        tag: "\"1\"",
        plain: b"script",
        brotli: Some(b"brotli"),
        gzip: Some(b"gzip"),
    },
    Asset { path: "/assets/index-0a1b2c.css", tag: "\"2\"", plain: b"style", brotli: None, gzip: None },
    Asset { path: "/index.html", tag: "\"3\"", plain: b"<html>", brotli: None, gzip: Some(b"gzip") },
];

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) invitation: Arc<OneTimeLink>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memory: FrameMemory,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
    pub(crate) folder: tempfile::TempDir,
}

/// What a test may want otherwise.
pub(crate) struct Wanted {
    pub(crate) settings: WebSettings,
    pub(crate) configured: TokenConfig,
    pub(crate) page: &'static [Asset],
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Wanted)) -> Self {
        let settings = WebSettings {
            is_enabled: true,
            allow_token_query: false,
            max_connections: 100,
            allow_hosts: Vec::new(),
            allow_local: AllowLocal::User,
            limits: WebLimits::default(),
        };
        let configured = TokenConfig { token: Some(Token::parse(TOKEN).unwrap()), allow_origins: Vec::new() };
        let mut wanted = Wanted { settings, configured, page: BUILT };
        change(&mut wanted);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supr.json");
        let tokens = Arc::new(TokenStore::open(file, wanted.configured, system_chance()).unwrap());
        let metrics = Arc::new(Metrics::default());
        let invitation = Arc::new(OneTimeLink::new(&system_chance()));
        let memory = FrameMemory::default();
        let web = Web {
            settings: wanted.settings,
            tokens: Arc::clone(&tokens),
            invitation: Some(Arc::clone(&invitation)),
            menu: Arc::new(Card),
            reception: Arc::new(Echo),
            archive: Arc::new(Shelf),
            processes: Arc::new(Bench),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            chance: counting(),
            page: wanted.page,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve_web(listener, web, stop.clone(), stop.clone()));
        Self { address, tokens, invitation, metrics, memory, stop, task, folder }
    }

    /// Sends a request with a body.
    pub(crate) async fn tell(&self, request: &str, body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let headers =
            if headers.is_empty() { String::new() } else { format!("{}\r\n", headers.replace('\n', "\r\n")) };
        let (address, length) = (self.address, body.len());
        let text =
            format!("{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        let mut stream = stream;
        stream.write_all(text.as_bytes()).await.unwrap();
        Answer::read(&mut stream).await
    }

    /// Sends a request as it is written, with `Host` where it says none, and reads the answer.
    pub(crate) async fn ask(&self, request: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.ask_on(stream, request).await
    }

    pub(crate) async fn ask_on(&self, mut stream: TcpStream, request: &str) -> Answer {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let mut text = format!("{line} HTTP/1.1\r\n");
        if !headers.lines().any(|header| header.to_ascii_lowercase().starts_with("host:")) {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for header in headers.lines() {
            text.push_str(&format!("{header}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Answer::read(&mut stream).await
    }

    /// A handshake whose headers can be chosen.
    pub(crate) async fn shake(&self, path: &str, headers: &str) -> Answer {
        self.ask(&handshake(path, headers)).await
    }

    /// A socket of that query, by the header.
    pub(crate) async fn connect(&self, query: &str) -> Client {
        self.try_connect(query).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, query: &str) -> Result<Client, Error> {
        self.connect_with(query, &[]).await
    }

    pub(crate) async fn connect_with(
        &self,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Client, Error> {
        let token = self.tokens.now().token.reveal().to_owned();
        let mut request = format!("ws://{}/supr/ws?{query}", self.address).into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        Ok(client_async(request, stream).await?.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A right handshake, but for `headers`, which come last.
pub(crate) fn handshake(path: &str, headers: &str) -> String {
    let upgrade = format!(
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: {KEY}"
    );
    format!("GET {path}\n{upgrade}\n{headers}").trim_end().to_owned()
}

/// The header that lets one in.
pub(crate) fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads until the answer is complete, or the connection is over, which is status 0.
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(answer) = Self::parse(&text, false) {
                return answer;
            }
            match stream.read(&mut buffer).await {
                Ok(count @ 1..) => bytes.extend_from_slice(buffer.get(..count).unwrap()),
                Ok(_) | Err(_) => {
                    let nothing = Self { status: 0, headers: Vec::new(), body: String::new() };
                    return Self::parse(&text, true).unwrap_or(nothing);
                }
            }
        }
    }

    fn parse(text: &str, is_over: bool) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let answer = Self { status, headers, body: body.to_owned() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        (is_over || body.len() >= length).then_some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert!(self.body.ends_with('\n'), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// A plain text of that status.
    pub(crate) fn assert_text(&self, status: u16, text: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, format!("{text}\n").as_str()));
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

/// The next text on a socket.
pub(crate) async fn text(client: &mut Client) -> String {
    client.next().await.unwrap().unwrap().into_text().unwrap().to_string()
}

/// How a socket is closed.
pub(crate) async fn close(client: &mut Client) -> Option<(u16, String)> {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(frame))) => {
                return frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// Tells a client who it is, and then says back what it says.
struct Echo;

#[async_trait]
impl SocketHandler for Echo {
    async fn receive(&self, arrival: HandshakeQuery, mut socket: Socket, stop: StopSignal) {
        let HandshakeQuery { session, is_chosen, after, watch, streams, traceparent } = arrival;
        let trace = traceparent.map(|parent| parent.trace_id().to_owned());
        let hello = serde_json::json!({
            "session": session, "chosen": is_chosen, "after": after, "watch": watch, "streams": streams, "trace": trace,
        });
        if socket.send(Message::text(hello.to_string())).await.is_err() {
            return;
        }
        let echo = async {
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() && socket.send(message).await.is_err() {
                    return;
                }
            }
        };
        let farewell = tokio::select! {
            () = echo => return,
            farewell = stop.asked() => farewell,
        };
        let (code, reason) = match farewell {
            CloseReason::Replaced => (4001, "replaced"),
            CloseReason::GoingAway => (1001, "going away"),
        };
        let _ = socket.close(Some(CloseFrame { code: code.into(), reason: reason.into() })).await;
        while let Some(Ok(_)) = socket.next().await {}
    }
}

/// Two agents and a model.
struct Card;

#[async_trait]
impl ModelMenu for Card {
    async fn agents(&self) -> Vec<AgentInfo> {
        let demo = AgentInfo { model: Some("fast".to_owned()), ..agent("demo", "Demo", "model", false) };
        vec![agent("local", "Local", "local", true), demo]
    }

    async fn models(&self) -> Vec<ModelInfo> {
        let [name, provider, model] = ["fast", "ollama", "small"].map(str::to_owned);
        vec![ModelInfo { name, provider, model }]
    }

    fn reasoning(&self) -> Vec<&'static str> {
        vec!["off", "low"]
    }

    fn settings_file(&self) -> &str {
        "~/.parlor/parlor.toml"
    }
}

fn agent(id: &str, name: &str, kind: &'static str, is_default: bool) -> AgentInfo {
    AgentInfo { id: id.to_owned(), name: name.to_owned(), kind, model: None, is_default }
}

/// Three sessions.
struct Shelf;

fn line(id: &str) -> SessionInfo {
    let [title, preview, time] = [id, "how it began", "2026-01-02T03:04:05.006Z"].map(str::to_owned);
    SessionInfo {
        id: id.to_owned(),
        title,
        full_title: None,
        preview,
        message_count: 2,
        created: time.clone(),
        updated: time.clone(),
        door: "supr".to_owned(),
        agent_id: String::new(),
        running: true,
        queued: 1,
        here: true,
        last_event: Some(LastEvent { event_type: "run.queued", error_code: None, timestamp: time }),
    }
}

#[async_trait]
impl Archive for Shelf {
    async fn list(&self, words: &str, offset: usize, limit: usize) -> Result<Vec<SessionInfo>, ArchiveError> {
        if offset == 1000 {
            return Ok(vec![SessionInfo { message_count: limit as u64, ..line("asked") }]);
        }
        Ok(["c", "b", "a/b"]
            .iter()
            .filter(|id| id.contains(words))
            .skip(offset)
            .take(limit)
            .map(|id| line(id))
            .collect())
    }

    async fn rename(&self, id: &str, title: &str) -> Result<SessionInfo, ArchiveError> {
        match (id, title) {
            (_, "") => Err(ArchiveError::Wrong("a title needs a letter".to_owned())),
            ("b", _) => Err(ArchiveError::Busy("another process has it".to_owned())),
            ("a/b", _) => Ok(SessionInfo { title: title.to_owned(), ..line(id) }),
            _ => Err(ArchiveError::Unknown),
        }
    }

    async fn read(&self, id: &str) -> Result<SessionTranscript, ArchiveError> {
        match id {
            "a/b" => {
                let SessionInfo { id, created, updated, .. } = line(id);
                let messages = vec![MessageText { role: "user", content: "hi".to_owned() }];
                Ok(SessionTranscript {
                    id,
                    messages,
                    truncated: false,
                    summary: String::new(),
                    created,
                    updated,
                })
            }
            "large" => {
                let SessionInfo { id, created, updated, .. } = line(id);
                let messages = vec![MessageText { role: "user", content: "x".repeat(LARGE_TEXT_BYTES) }];
                Ok(SessionTranscript {
                    id,
                    messages,
                    truncated: true,
                    summary: String::new(),
                    created,
                    updated,
                })
            }
            "broken" => Err(ArchiveError::Trouble("the disk is gone".to_owned())),
            _ => Err(ArchiveError::Unknown),
        }
    }

    async fn events(&self, id: &str, before: Option<u64>, limit: usize) -> Result<EventPage, ArchiveError> {
        if id != "a/b" {
            return Err(ArchiveError::Unknown);
        }
        let events = vec![RawValue::from_string("{\"event_type\": \"run.started\"}".to_owned()).unwrap()];
        // As many as were asked for from here are said to have been asked for.
        Ok(EventPage { events, before, last_event_id: Some(limit.to_string()) })
    }

    async fn usage(&self, days: usize) -> Result<UsageReport, ArchiveError> {
        let days = vec![DayUsage { date: days.to_string(), runs: 1, ..DayUsage::default() }];
        Ok(UsageReport { days, models: vec![ModelUsage { model: "m".to_owned(), ..ModelUsage::default() }] })
    }

    async fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    async fn media(&self, id: &str) -> Result<StoredFile, ArchiveError> {
        let image = match id {
            "image" => Some("image/png"),
            "page" => None,
            _ => return Err(ArchiveError::Unknown),
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; 2 * FILE_PIECE_BYTES + 1]).unwrap();
        file.rewind().unwrap();
        Ok(StoredFile { file, size: (2 * FILE_PIECE_BYTES + 1) as u64, image })
    }

    async fn delete(&self, id: &str) -> Result<(), ArchiveError> {
        match id {
            "c" => Ok(()),
            "b" => Err(ArchiveError::Busy("a run is active".to_owned())),
            _ => Err(ArchiveError::Unknown),
        }
    }
}

fn counting() -> parlor_web::RandomSource {
    let count = AtomicU64::new(1);
    Arc::new(move || u128::from(count.fetch_add(1, Ordering::Relaxed)).to_be_bytes())
}
