use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;

mod attacks;

const STATE: &str = "the-right-state";

fn redirect(port: Option<u16>) -> Redirect {
    Redirect { host: "127.0.0.1".to_owned(), port, path: "/back".to_owned() }
}

/// An answer with the right state.
fn expected() -> ExpectedAnswer {
    ExpectedAnswer { state: Secret::new(STATE), issuer: None }
}

/// Admits all peers.
fn admit_all() -> AdmitsPeer {
    Arc::new(|_| true)
}

/// Starts a callback server; returns its port and the task that waits for the code.
async fn start_callback(read_wait: Duration) -> (u16, JoinHandle<Result<Secret, LoginError>>) {
    let mut callback = Callback::listen(&redirect(None)).await.unwrap();
    callback.read_wait = read_wait;
    let port = callback.port;
    let code = async move { callback.wait_for_code(expected(), &Redactor::new(), &admit_all()).await };
    (port, tokio::spawn(code))
}

/// Sends `request` and returns the whole response.
async fn send(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let _ = stream.write_all(request).await;
    let mut response = Vec::new();
    match stream.read_to_end(&mut response).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(response).unwrap()
}

async fn get(port: u16, target: &str) -> String {
    send(port, format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes()).await
}

#[tokio::test]
async fn the_code_is_accepted_once_and_the_page_is_not_cached() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    let page = get(port, "/back?code=a%2Bb&state=the-right-state&iss=x").await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("close this page"), "{page}");
    assert!(
        page.contains("cache-control: no-store") && page.contains("referrer-policy: no-referrer"),
        "{page}"
    );
    assert_eq!(code.await.unwrap(), Ok(Secret::new("a+b")));
    let again = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    assert_eq!(again.err().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
}

#[tokio::test]
async fn other_requests_change_nothing() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    assert!(get(port, "/favicon.ico").await.starts_with("HTTP/1.1 404 "));
    assert!(get(port, "/back/?code=x&state=the-right-state").await.starts_with("HTTP/1.1 404 "));
    let post = format!(
        "POST /back?code=x&state={STATE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\ncontent-length: 0\r\n\r\n"
    );
    assert!(send(port, post.as_bytes()).await.starts_with("HTTP/1.1 405 "));
    assert!(send(port, b"nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    get(port, "/back?code=c&state=the-right-state").await;
    assert_eq!(code.await.unwrap(), Ok(Secret::new("c")));
}

#[tokio::test]
async fn failed_callbacks_get_a_page_and_end_the_login() {
    let denied =
        LoginError::Denied { code: "access_denied".to_owned(), description: Some("not you".to_owned()) };
    let unexplained = LoginError::Denied { code: "server_error".to_owned(), description: None };
    for (target, status, expected) in [
        ("/back?code=c&state=wrong", 400, LoginError::StateMismatch),
        ("/back?code=c", 400, LoginError::StateMismatch),
        ("/back", 400, LoginError::StateMismatch),
        ("/back?error=access_denied&state=wrong", 400, LoginError::StateMismatch),
        ("/back?error=access_denied&error_description=not%20you&state=the-right-state", 400, denied),
        ("/back?error=server_error&code=c&state=the-right-state", 400, unexplained),
        ("/back?code=&state=the-right-state", 400, LoginError::NoCode),
        ("/cancel?state=the-right-state", 200, LoginError::Cancelled),
    ] {
        let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
        let page = get(port, target).await;
        assert!(page.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {page}");
        assert_eq!(code.await.unwrap(), Err(expected), "{target}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_does_not_end_the_login() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    // The request would be valid if it were shorter.
    let much = "x".repeat(2 * CALLBACK_HEADER_BYTES);
    let long =
        format!("GET /back?code={much}&state=the-right-state HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let response = send(port, long.as_bytes()).await;
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{response}");
    get(port, "/back?code=c&state=the-right-state").await;
    assert_eq!(code.await.unwrap(), Ok(Secret::new("c")));
}

#[tokio::test]
async fn slow_connections_do_not_keep_the_browser_out() {
    let (port, code) = start_callback(Duration::from_millis(50)).await;
    let mut slow = Vec::new();
    for _ in 0..2 * MAX_CALLBACK_CONNECTIONS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(b"GET /back?co").await.unwrap();
        slow.push(stream);
    }
    get(port, "/back?code=c&state=the-right-state").await;
    assert_eq!(code.await.unwrap(), Ok(Secret::new("c")));
    drop(slow);
}

#[tokio::test]
async fn a_port_in_use_is_replaced_by_a_free_one() {
    let first = Callback::listen(&redirect(None)).await.unwrap();
    let second = Callback::listen(&redirect(Some(first.port))).await.unwrap();
    assert_ne!(first.port, second.port);
    let port = second.port;
    drop(second);
    // The port is free again, so the requested one is used.
    let third = Callback::listen(&redirect(Some(port))).await.unwrap();
    assert_eq!(third.redirect_url(), format!("http://127.0.0.1:{port}/back"));
}

#[tokio::test]
async fn an_answer_of_another_authorization_server_is_not_believed() {
    let ours = "https://as.example";
    for (is_promised, iss, is_accepted) in [
        (false, "", true),
        (true, "", false),
        (false, "&iss=https%3A%2F%2Fas.example", true),
        (true, "&iss=https%3A%2F%2Fas.example", true),
        (false, "&iss=https%3A%2F%2Fas.example%2F", false),
        (true, "&iss=https%3A%2F%2Fevil.example", false),
        (false, "&iss=", false),
    ] {
        let callback = Callback::listen(&redirect(None)).await.unwrap();
        let port = callback.port;
        let answer = ExpectedAnswer { issuer: Some((ours.to_owned(), is_promised)), ..expected() };
        let code =
            tokio::spawn(async move { callback.wait_for_code(answer, &Redactor::new(), &admit_all()).await });
        let page =
            get(port, &format!("/back?code=c&error=e&error_description=hostile&state={STATE}{iss}")).await;
        let result = code.await.unwrap();
        if is_accepted {
            assert!(matches!(result, Err(LoginError::Denied { .. })), "{iss}: {result:?}");
        } else {
            assert_eq!(result, Err(LoginError::IssuerMismatch), "{is_promised} {iss}");
            assert!(!page.contains("hostile"), "{page}");
        }
    }
}
