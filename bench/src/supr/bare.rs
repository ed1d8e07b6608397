//! The bare server: what comes on `/echo` goes back, what comes on `/say` goes to all on `/hear`.

use std::io::Write;

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::Message;

/// How many frames may wait for those who hear them: more than are ever said in one round.
const FRAMES: usize = 16 * 1024;

/// Says where it listens, and serves until it is killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        let (said, _) = broadcast::channel(FRAMES);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve_one(stream, said.clone()));
        }
    })
}

async fn serve_one(stream: TcpStream, said: broadcast::Sender<Utf8Bytes>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut path = String::new();
    #[expect(clippy::result_large_err, reason = "the library asks for this form")]
    let note = |request: &Request, response: Response| {
        request.uri().path().clone_into(&mut path);
        Ok(response)
    };
    // Before the handshake is answered, so that whoever is connected hears everything.
    let mut heard = said.subscribe();
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, note).await?;
    match path.as_str() {
        "/hear" => {
            while let Ok(text) = heard.recv().await {
                socket.send(Message::Text(text)).await?;
            }
        }
        "/say" => {
            drop(heard);
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                said.send(text)?;
            }
        }
        _ => {
            drop(heard);
            while let Some(Ok(message @ Message::Text(_))) = socket.next().await {
                socket.send(message).await?;
            }
        }
    }
    Ok(())
}
