//! The bare server: it echoes frames on `/echo`, and broadcasts frames from `/send` to all clients on `/receive`.

use std::io::Write;

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::Message;

/// How many frames may wait for a receiver: more than one round has.
const QUEUED_FRAMES: usize = 16 * 1024;

/// Prints its address, and serves until it is killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        let (sender, _) = broadcast::channel(QUEUED_FRAMES);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve_one(stream, sender.clone()));
        }
    })
}

async fn serve_one(stream: TcpStream, sender: broadcast::Sender<Utf8Bytes>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut path = String::new();
    #[expect(clippy::result_large_err, reason = "the library requires this signature")]
    let record_path = |request: &Request, response: Response| {
        request.uri().path().clone_into(&mut path);
        Ok(response)
    };
    // Subscribe before the handshake is answered, so that a connected client gets every frame.
    let mut receiver = sender.subscribe();
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, record_path).await?;
    match path.as_str() {
        "/receive" => {
            while let Ok(text) = receiver.recv().await {
                socket.send(Message::Text(text)).await?;
            }
        }
        "/send" => {
            drop(receiver);
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                sender.send(text)?;
            }
        }
        _ => {
            drop(receiver);
            while let Some(Ok(message @ Message::Text(_))) = socket.next().await {
                socket.send(message).await?;
            }
        }
    }
    Ok(())
}
