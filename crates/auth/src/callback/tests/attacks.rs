//! Attacks on the callback by a hostile web page, by DNS rebinding and by other local users.

use std::net::Ipv6Addr;

use super::*;

/// A test fails after this time, if an attack makes the login hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a GET request with these headers. Each header includes its line end.
async fn request(port: u16, target: &str, headers: &str) -> String {
    send(port, format!("GET {target} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await
}

/// Asserts that the login still accepts the code of the real browser.
async fn assert_still_works(port: u16, code: JoinHandle<Result<Secret, LoginError>>, after: &str) {
    let page = tokio::time::timeout(TEST_TIMEOUT, get(port, "/back?code=real&state=the-right-state")).await;
    let page = page.unwrap_or_else(|_| panic!("the browser gets no response after {after}"));
    assert!(page.starts_with("HTTP/1.1 200 "), "after {after}: {page}");
    assert_eq!(code.await.unwrap(), Ok(Secret::new("real")), "after {after}");
}

#[tokio::test]
async fn a_login_cannot_be_cancelled_without_its_state() {
    for target in ["/cancel", "/cancel?", "/cancel?state=", "/cancel?state=guessed", "/cancel?code=x"] {
        let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
        let page = get(port, target).await;
        assert!(page.starts_with("HTTP/1.1 400 "), "{target}: {page}");
        assert_still_works(port, code, target).await;
    }
}

#[tokio::test]
async fn requests_for_other_host_names_are_refused() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    let other = if port == 9999 { 9998 } else { 9999 };
    for headers in [
        format!("Host: attacker.example:{port}\r\n"),
        "Host: attacker.example\r\n".to_owned(),
        format!("Host: 127.0.0.1:{other}\r\n"),
        "Host: 127.0.0.1\r\n".to_owned(),
        format!("Host: 127.0.0.1.attacker.example:{port}\r\n"),
        format!("Host: localhost.:{port}\r\n"),
        format!("Host: 0.0.0.0:{port}\r\n"),
        "Host: \r\n".to_owned(),
        String::new(),
        format!("Host: 127.0.0.1:{port}\r\nHost: attacker.example:{port}\r\n"),
    ] {
        for target in ["/back?code=x&state=the-right-state", "/back?code=x&state=wrong", "/cancel"] {
            let page = request(port, target, &headers).await;
            assert!(page.starts_with("HTTP/1.1 421 "), "{headers:?} {target}: {page}");
        }
    }
    let absolute = format!("http://attacker.example:{port}/back?code=x&state=the-right-state");
    let page = request(port, &absolute, &format!("Host: 127.0.0.1:{port}\r\n")).await;
    assert!(page.starts_with("HTTP/1.1 421 "), "{page}");
    assert_still_works(port, code, "requests for other host names").await;
}

#[tokio::test]
async fn every_loopback_name_is_accepted() {
    for name in ["127.0.0.1", "localhost", "LocalHost", "[::1]"] {
        let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
        let page =
            request(port, "/back?code=c&state=the-right-state", &format!("Host: {name}:{port}\r\n")).await;
        assert!(page.starts_with("HTTP/1.1 200 "), "{name}: {page}");
        assert_eq!(code.await.unwrap(), Ok(Secret::new("c")), "{name}");
    }
}

/// The headers that browsers send with requests embedded in a page of another site.
const EMBEDDED: [(&str, &str); 9] = [
    ("an image", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"),
    ("a script", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n"),
    (
        "a fetch without CORS",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: empty\r\n",
    ),
    (
        "a fetch with CORS",
        "Origin: https://attacker.example\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n",
    ),
    ("a fetch of an older browser", "Origin: https://attacker.example\r\n"),
    ("a frame", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"),
    ("an object", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: object\r\n"),
    (
        "a page in advance",
        "Sec-Purpose: prefetch;prerender\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
    ),
    (
        "a WebSocket",
        "Origin: https://attacker.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-Fetch-Mode: websocket\r\n",
    ),
];

#[tokio::test]
async fn embedded_requests_of_other_pages_change_nothing() {
    for (what, headers) in EMBEDDED {
        for target in ["/back?code=x&state=wrong", "/back", "/back?error=access_denied", "/cancel"] {
            let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
            let page = request(port, target, &format!("Host: 127.0.0.1:{port}\r\n{headers}")).await;
            assert!(page.starts_with("HTTP/1.1 403 "), "{what}, {target}: {page}");
            assert_still_works(port, code, what).await;
        }
    }
}

#[tokio::test]
async fn a_redirected_browser_window_is_accepted() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    let headers = format!(
        "Host: localhost:{port}\r\nReferer: https://login.example/\r\nSec-Fetch-Site: cross-site\r\n\
         Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    );
    let page = request(port, "/back?code=c&state=the-right-state", &headers).await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert_eq!(code.await.unwrap(), Ok(Secret::new("c")));
}

#[tokio::test]
async fn forms_and_preflights_are_refused() {
    let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
    for method in ["POST", "PUT", "HEAD", "OPTIONS", "TRACE", "DELETE"] {
        for target in ["/back?code=x&state=wrong", "/cancel?state=the-right-state"] {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: https://attacker.example\r\n\
                 Access-Control-Request-Method: GET\r\nAccess-Control-Request-Private-Network: true\r\n\
                 Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
            );
            let page = send(port, request.as_bytes()).await;
            assert!(page.starts_with("HTTP/1.1 405 "), "{method}: {page}");
            assert!(!page.to_ascii_lowercase().contains("access-control-allow"), "{method}: {page}");
        }
    }
    assert_still_works(port, code, "forms").await;
}

#[tokio::test]
async fn silent_connections_do_not_keep_the_browser_out() {
    // The read timeout never passes in this test: only eviction closes connections.
    let (port, code) = start_callback(Duration::from_secs(3600)).await;
    let mut silent = Vec::new();
    for number in 0..4 * MAX_CALLBACK_CONNECTIONS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /back?code=").await.unwrap();
        }
        silent.push(stream);
    }
    assert_still_works(port, code, "silence").await;
    drop(silent);
}

#[tokio::test]
async fn pages_echo_nothing_and_cannot_be_cached_framed_or_scripted() {
    let mark = "%3Cscript%3Ealert(1)%3C/script%3E";
    for target in [
        format!("/back?code={mark}&state=the-right-state"),
        format!("/back?code=x&state={mark}"),
        format!("/back?error={mark}&error_description={mark}&state=the-right-state"),
        format!("/cancel?state={mark}"),
        format!("/{mark}"),
    ] {
        let (port, code) = start_callback(CALLBACK_READ_WAIT).await;
        let page = get(port, &target).await;
        assert!(!page.contains("script") && !page.contains("alert"), "{target}: {page}");
        for header in [
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: DENY",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(page.contains(header), "{target} without {header}: {page}");
        }
        code.abort();
    }
}

#[tokio::test]
async fn no_other_program_receives_the_callback_for_localhost() {
    let localhost =
        |port| Redirect { host: "localhost".to_owned(), port: Some(port), path: "/back".to_owned() };
    let Ok(squatter) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await else {
        eprintln!("skipped: this machine has no ::1");
        return;
    };
    let taken = squatter.local_addr().unwrap().port();
    let callback = Callback::listen(&localhost(taken)).await.unwrap();
    assert_ne!(callback.port, taken, "a browser may use ::1 first, where another program listens");

    // A callback to ::1 is received.
    let port = callback.port;
    let code =
        tokio::spawn(async move { callback.wait_for_code(expected(), &Redactor::new(), &admit_all()).await });
    let mut stream = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
    let request = format!("GET /back?code=c&state={STATE} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(code.await.unwrap(), Ok(Secret::new("c")));
}

#[tokio::test]
async fn refused_peers_cannot_end_the_login_and_use_few_connections() {
    let mut callback = Callback::listen(&redirect(None)).await.unwrap();
    callback.read_wait = Duration::from_secs(3600);
    let port = callback.port;
    // The first connections come from another user.
    let foreign = std::sync::atomic::AtomicUsize::new(2 * MAX_CALLBACK_REFUSED);
    let is_foreign = move || {
        let counted = std::sync::atomic::Ordering::Relaxed;
        foreign.fetch_update(counted, counted, |left| left.checked_sub(1)).is_ok()
    };
    let admits: AdmitsPeer = Arc::new(move |_| !is_foreign());
    let code =
        tokio::spawn(async move { callback.wait_for_code(expected(), &Redactor::new(), &admits).await });
    let forged = get(port, &format!("/back?code=theirs&state={STATE}")).await;
    assert!(forged.starts_with("HTTP/1.1 403 ") && forged.contains("another user"), "{forged}");
    let mut silent = Vec::new();
    for _ in 1..2 * MAX_CALLBACK_REFUSED {
        silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
    }
    // Connections beyond the limit are closed at once. The others may stay silent for an hour.
    for stream in &mut silent[MAX_CALLBACK_REFUSED..] {
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    }
    let page = get(port, &format!("/back?code=ours&state={STATE}")).await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert_eq!(code.await.unwrap(), Ok(Secret::new("ours")));
}
